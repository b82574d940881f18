"""Updates: any micro-batch split and skipping of dead rollouts give the same gradient."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch

from stepladder.core.control import Knobs
from stepladder.core.prompt import Split
from stepladder.core.rollout import SamplingParams, StopReason
from stepladder.engine.adamw import AdamW, AdamWSettings
from stepladder.engine.algo.build import ALGORITHMS, build_algorithm
from stepladder.engine.batch import RolloutBatch
from stepladder.engine.load import load_policy
from stepladder.engine.optim import Optimizer
from stepladder.engine.parts import Learner
from stepladder.engine.prepare import prepare
from stepladder.engine.reference import build_reference
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.text import load_codec
from stepladder.engine.update import accumulate, minibatches
from stepladder.rewards.score import score_groups
from stepladder.spec.algorithm import ALGORITHM_NAMES
from stepladder.spec.run import ModelSpec, OptimSpec


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.tiny_policy(tmp_path_factory.mktemp("policy"), dtype="float64")


def setting(folder, **changes):
    run = tiny.tiny_run(model={"dtype": "float64"}, **changes)
    policy = load_policy(folder, run.model, 1.0)
    prompts = tiny.TinyTask().prompts(Split.TRAIN)[:4]
    sampler = LocalSampler(policy, load_codec(folder))
    params = SamplingParams(max_new_tokens=6, seed=3)
    groups = score_groups(tiny.TinyReward(), prompts, sampler.sample(prompts, [4, 4, 4, 4], params))
    learner = Learner(
        run=run,
        policy=policy,
        algorithm=build_algorithm(run),
        optimizer=Optimizer(policy.named_parameters(), run.optim, run.budget.steps),
        reference=build_reference(policy, run),
    )
    return learner, groups


def gradient(learner, batch, knobs, micro):
    weights = learner.policy.named_parameters().values()
    for weight in weights:
        weight.grad = None
    sums = accumulate(batch, learner, knobs, micro)
    return torch.cat([w.grad.flatten() for w in weights]), sums


def test_the_split_does_not_change_the_gradient_or_the_sums(folder):
    learner, groups = setting(folder)
    knobs = Knobs(kl_coef=0.1, entropy_coef=0.05)
    batch = prepare(groups, learner, knobs)
    whole, sums = gradient(learner, batch, knobs, 16)
    for micro in (1, 3, 8):
        split, split_sums = gradient(learner, batch, knobs, micro)
        torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-12)
        assert split_sums.sums == pytest.approx(sums.sums, rel=1e-5)


def test_skipping_dead_rollouts_is_exact(folder):
    learner, groups = setting(folder, kl__coef=0.0, kl__cap=None, entropy__coef=0.0)
    free, paid = Knobs(kl_coef=0.0, entropy_coef=0.0), Knobs(kl_coef=0.0, entropy_coef=1e-30)
    batch = prepare(groups, learner, free)
    dead_N = batch.packed.group_N >= 2
    advantage_NT = batch.advantage_NT * ~dead_N[:, None]
    batch = RolloutBatch(packed=batch.packed, advantage_NT=advantage_NT)
    skipped, sums = gradient(learner, batch, free, 16)
    full, full_sums = gradient(learner, batch, paid, 16)
    torch.testing.assert_close(skipped, full, rtol=1e-9, atol=1e-12)
    assert sums.sums == pytest.approx(full_sums.sums, rel=1e-6)


def test_kl_in_the_reward_moves_advantages(folder):
    learner, groups = setting(folder, kl__placement="reward", kl__coef=0.5)
    learner.reference._weights["embedding"].mul_(0.5)
    knobs = Knobs(kl_coef=0.5, entropy_coef=0.0)
    batch = prepare(groups, learner, knobs)
    packed = batch.packed
    d_NT = (packed.sampler_logp_NT.double() - packed.ref_logp_NT) * packed.action_NT
    k3_N = ((-d_NT).exp() - 1 + d_NT).sum(1)
    total_PG = (packed.reward_N.double() - 0.5 * k3_N).view(4, 4)
    expected = (total_PG - total_PG.mean(1, keepdim=True)) / total_PG.std(1, keepdim=True)
    first_N = packed.prompt_length_N
    found = batch.advantage_NT.gather(1, first_N[:, None]).view(4, 4).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(packed.kl_reward_N.double(), -0.5 * k3_N, rtol=1e-4, atol=1e-4)


def ended(index, rollout):
    """Let every other rollout end by itself, the earlier the lower its index."""
    if index % 2:
        return rollout
    kept = index + 2
    completion = replace(
        rollout.completion,
        token_ids=rollout.completion.token_ids[:kept],
        logprobs=rollout.completion.logprobs[:kept],
        stop=StopReason.EOS,
    )
    return replace(rollout, completion=completion)


def test_overlong_completions_are_penalised_or_masked(folder):
    penalty = {"type": "grpo", "overlong": "penalty", "overlong_buffer": 4}
    learner, groups = setting(folder, algorithm=penalty)
    knobs = Knobs(kl_coef=0.0, entropy_coef=0.0)
    groups = [replace(g, rollouts=tuple(map(ended, range(4), g.rollouts))) for g in groups]
    packed = prepare(groups, learner, knobs).packed
    rollouts = [r for g in groups for r in g.rollouts if r.completion.token_ids]
    for row, rollout in enumerate(rollouts):
        share = min(1.0, max(0, len(rollout.completion.token_ids) - 2) / 4)
        assert packed.reward_N[row].item() == pytest.approx(rollout.reward - share, abs=1e-6)
    learner, _ = setting(folder, algorithm={"type": "grpo", "overlong": "mask"})
    batch = prepare(groups, learner, knobs)
    cut = torch.tensor([r.completion.stop.truncated for r in rollouts])
    assert 0 < int(cut.sum()) < len(cut)
    assert torch.equal(batch.packed.weight_N == 0, cut)
    assert (batch.advantage_NT[cut] != 0).any(), "a masked rollout counts in its group's baseline"


def test_minibatches_cover_every_row_once_and_keep_groups_together():
    parts = list(minibatches(12, 4, seed=1))
    assert sorted(torch.cat(parts).tolist()) == list(range(12))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    again, other = list(minibatches(12, 4, seed=1)), list(minibatches(12, 4, seed=2))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(parts, other, strict=True))
    assert list(minibatches(4, 4, seed=1)) == [None]


def test_algorithm_names_are_those_of_the_spec():
    assert tuple(ALGORITHMS) == ALGORITHM_NAMES


def optimizer(steps=10, **settings):
    weight = torch.nn.Parameter(torch.ones(3, 2))
    return Optimizer({"w": weight}, OptimSpec(**settings), steps), weight


def test_the_rate_rises_from_zero_and_then_follows_the_schedule():
    rates = {
        schedule: [
            optimizer(lr=1e-2, warmup_steps=2, schedule=schedule)[0].learning_rate(step)
            for step in (1, 2, 3, 7, 10)
        ]
        for schedule in ("constant", "linear", "cosine")
    }
    assert rates["constant"] == pytest.approx([5e-3, 1e-2, 1e-2, 1e-2, 1e-2])
    assert rates["linear"] == pytest.approx([5e-3, 1e-2, 1e-2, 5e-3, 1.25e-3])
    assert rates["cosine"][2:4] == pytest.approx([1e-2, 5e-3])


def test_gradients_are_clipped_to_the_norm():
    one, weight = optimizer(max_grad_norm=1.0)
    weight.grad = torch.full_like(weight, 10.0)
    result = one.update(1e-3)
    assert (result.clipped, result.applied) == (True, True)
    assert result.grad_norm == pytest.approx(10 * 6**0.5)
    assert weight.grad.norm().item() == pytest.approx(1.0, rel=1e-5)


def test_a_gradient_that_is_not_finite_is_not_applied():
    one, weight = optimizer()
    weight.grad = torch.full_like(weight, float("inf"))
    assert not one.update(1e-3).applied
    assert torch.equal(weight, torch.ones(3, 2))
    assert one.state() == {}


def test_model_spec_dtype_reaches_the_weights(folder):
    policy = load_policy(folder, ModelSpec(dtype="bfloat16"), 1.0)
    assert {w.dtype for w in policy.named_parameters().values()} == {torch.bfloat16}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_equals_torchs(weight_decay):
    generator = torch.Generator().manual_seed(0)
    ours = {"w": torch.nn.Parameter(torch.ones(3, 2)), "b": torch.nn.Parameter(torch.ones(2))}
    theirs = [torch.nn.Parameter(w.detach().clone()) for w in ours.values()]
    groups = [
        {"params": theirs[:1], "weight_decay": weight_decay},
        {"params": theirs[1:], "weight_decay": 0.0},
    ]
    one = AdamW(ours, AdamWSettings(weight_decay=weight_decay))
    other = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(5):
        for weight, twin in zip(ours.values(), theirs, strict=True):
            weight.grad = torch.randn(weight.shape, generator=generator)
            twin.grad = weight.grad.clone()
        one.step(1e-2)
        other.step()
    for weight, twin in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(weight, twin, atol=1e-7, rtol=1e-6)


def test_training_does_not_load_torchs_compiler(tmp_path):
    code = (
        "import sys, tiny; from pathlib import Path; here = Path(sys.argv[1]);"
        "tiny.execute(tiny.tiny_run(budget__steps=3), tiny.tiny_policy(here / 'm'), here / 'r');"
        "heavy = {'torch._dynamo', 'transformers', 'sympy'} & set(sys.modules);"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    tests = Path(tiny.__file__).parent
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=tests)
