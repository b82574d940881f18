"""LoRA through peft, activations computed again, and training in bfloat16."""

import json
import math

import pytest
import tiny
import torch

from stepladder.core.control import CONTINUE, stop
from stepladder.core.errors import SpecError
from stepladder.core.job import JobState
from stepladder.core.prompt import Split
from stepladder.core.rollout import SamplingParams
from stepladder.engine import lora
from stepladder.engine.batch import pack
from stepladder.engine.load import load_policy
from stepladder.engine.policy import CompactBackbone
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.text import load_codec
from stepladder.rewards.score import score_groups
from stepladder.spec.run import ModelSpec

RANK = {"rank": 2, "alpha": 4.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("base")
    return tiny.tiny_policy(where, dtype="float64", num_hidden_layers=2)


def load(folder, dtype="float64", compact=True, **model):
    spec = ModelSpec.model_validate({"dtype": dtype, **model})
    return load_policy(folder, spec, 0.7, prefer_compact=compact)


def sampled(folder, policy, counts=(3, 1, 4)):
    prompts = tiny.TinyTask().prompts(Split.TRAIN)[: len(counts)]
    params = SamplingParams(max_new_tokens=7, temperature=0.7, seed=5)
    completions = LocalSampler(policy, load_codec(folder)).sample(prompts, counts, params)
    return pack(score_groups(tiny.TinyReward(), prompts, completions))


def weights_of(policy):
    return {name: weight.detach().clone() for name, weight in policy.named_parameters().items()}


def gradients(policy, packed):
    """Of a loss that log-probs and entropy both enter."""
    found = policy.logprobs(packed)
    scale_NT = torch.linspace(-1, 1, found.logp_NT.numel()).view_as(found.logp_NT)
    names, weights = zip(*policy.named_parameters().items(), strict=True)
    loss = (scale_NT * (found.logp_NT - 0.1 * found.entropy_NT)).sum()
    return dict(zip(names, torch.autograd.grad(loss, weights), strict=True))


def trained(policy, packed, rate=0.05, steps=3):
    for _ in range(steps):
        found = gradients(policy, packed)
        with torch.no_grad():
            for name, weight in policy.named_parameters().items():
                weight -= rate * found[name]
    return policy


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_fresh_adapters_leave_the_model_as_it_is(folder):
    plain, policy = load(folder, compact=False), load(folder, lora=RANK)
    packed = sampled(folder, plain)
    torch.testing.assert_close(policy.logp(packed), plain.logp(packed), rtol=1e-12, atol=1e-12)


def test_only_adapters_train_under_stable_names_from_a_fixed_start(folder):
    state = torch.random.get_rng_state()
    first, second = load(folder, lora=RANK), load(folder, lora=RANK)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert weights_of(first).keys() == weights_of(second).keys()
    assert all(torch.equal(w, weights_of(second)[n]) for n, w in weights_of(first).items())
    assert len(weights_of(first)) == 2 * 7 * 2, "two layers of seven matrices, A and B each"
    assert all(".lora_A." in name or ".lora_B." in name for name in weights_of(first))
    few = load(folder, lora={**RANK, "targets": "attention"})
    assert {name.split(".")[-4] for name in weights_of(few)} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
    }


def test_training_moves_adapters_only_and_the_sampler_sees_them(folder):
    policy = load(folder, lora=RANK)
    packed = sampled(folder, policy)
    base = {n: w.clone() for n, w in policy.backbone.model.state_dict().items() if "lora" not in n}
    before = policy.logp(packed)
    trained(policy, packed)
    assert (policy.logp(packed) - before).abs().max() > 0.01
    after = policy.backbone.model.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in base.items())
    again = sampled(folder, policy)
    difference = (policy.logp(again) - again.sampler_logp_NT).abs().max()
    assert difference < 1e-5


# Ours to hide in lora.py, but not peft's own loading.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_a_saved_folder_is_a_plain_model_with_the_adapters_beside_it(folder, tmp_path):
    policy = load(folder, lora=RANK)
    packed = sampled(folder, policy)
    trained(policy, packed)
    kept, expected = weights_of(policy), policy.logp(packed)
    policy.save_folder(tmp_path)
    assert all(torch.equal(weight, kept[name]) for name, weight in weights_of(policy).items())
    assert torch.equal(policy.logp(packed), expected), "saving changed the policy"
    merged = load(tmp_path, compact=False)
    torch.testing.assert_close(merged.logp(packed), expected, rtol=1e-9, atol=1e-9)
    compact = load(tmp_path)
    assert isinstance(compact.backbone, CompactBackbone)
    # transformers takes norms in float32 whatever the model's type.
    torch.testing.assert_close(compact.logp(packed), expected, rtol=1e-5, atol=1e-5)
    config = json.loads((tmp_path / lora.ADAPTER_FOLDER / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (2, 4.0, 0.0)

    from peft import PeftModel

    base = load(folder, compact=False).backbone.model
    policy.backbone.model = PeftModel.from_pretrained(base, tmp_path / lora.ADAPTER_FOLDER)
    torch.testing.assert_close(policy.logp(packed), expected, rtol=1e-9, atol=1e-9)


def test_a_model_without_attention_layers_says_so():
    with pytest.raises(SpecError, match=r"model\.lora\.targets"):
        lora.attention_layers(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_a_missing_peft_is_named(folder, monkeypatch):
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"SL0136 model\.lora: .*peft"):
        load(folder, lora=RANK)


@pytest.mark.parametrize(
    ("compact", "adapters"), [(True, None), (False, None), (False, RANK)], ids=str
)
def test_checkpointing_gives_the_same_gradient(folder, compact, adapters):
    model = {"compact": compact, "lora": adapters}
    plain, again = load(folder, **model), load(folder, gradient_checkpointing=True, **model)
    packed = sampled(folder, plain)
    if adapters:
        trained(plain, packed)
        trained(again, packed)
    assert_same(gradients(plain, packed), gradients(again, packed))


@pytest.mark.parametrize("compact", [True, False])
def test_checkpointing_gives_a_critic_the_same_gradient(folder, compact):
    found = []
    for on in (False, True):
        policy = load(folder, compact=compact, gradient_checkpointing=on)
        packed = sampled(folder, policy)
        row_A, place_A = packed.action_NT.nonzero(as_tuple=True)
        hidden_AD = policy.backbone.hidden_at(packed, row_A, place_A - 1)
        names, weights = zip(*policy.named_parameters().items(), strict=True)
        hidden_AD = hidden_AD * torch.linspace(-1, 1, hidden_AD.shape[1])
        grads = torch.autograd.grad(hidden_AD.sum(), weights, allow_unused=True)
        found.append({n: g for n, g in zip(names, grads, strict=True) if g is not None})
    assert_same(*found)


@pytest.mark.parametrize("compact", [True, False])
def test_checkpointing_keeps_less_and_only_in_training_passes(folder, compact):
    kept = {}
    for on in (False, True):
        policy = load(folder, compact=compact, gradient_checkpointing=on)
        packed = sampled(folder, policy)
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda saved, sizes=sizes: sizes.append(saved.numel()) or saved, lambda saved: saved
        )
        with hooks:
            policy.logprobs(packed)
        kept[on] = sum(sizes)
    assert kept[True] < 0.8 * kept[False]


def test_checkpointing_never_runs_without_a_gradient(folder, monkeypatch):
    policy = load(folder, gradient_checkpointing=True)
    packed = sampled(folder, policy)
    import torch.utils.checkpoint

    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", None)
    policy.logp(packed)
    with pytest.raises(TypeError):
        policy.logprobs(packed)


@pytest.mark.parametrize("adapters", [None, RANK], ids=str)
def test_bfloat16_is_near_float32_and_stays_finite(tmp_path, adapters):
    # Mild logits: those of the other tests are 10 and more, where bfloat16's steps are 1/16.
    folder = tiny.tiny_policy(tmp_path / "base", num_hidden_layers=2, initializer_range=0.05)
    exact = load(folder, dtype="float32", lora=adapters)
    policy = load(folder, dtype="bfloat16", lora=adapters)
    packed = sampled(folder, exact)
    found = policy.logprobs(packed)
    assert found.logp_NT.dtype == torch.float32
    torch.testing.assert_close(found.logp_NT.detach(), exact.logp(packed), rtol=0, atol=1e-2)
    found = gradients(policy, packed)
    assert all(bool(value.isfinite().all()) for value in found.values())
    if adapters is None:
        policy.save_folder(tmp_path / "saved")
        config = json.loads((tmp_path / "saved" / "config.json").read_text())
        assert config["dtype"] == "bfloat16"
    else:
        assert all(weight.dtype == torch.float32 for weight in weights_of(policy).values())


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """Not a Llama: fused attention in transposed layers, and dropout in its config."""
    from transformers import GPT2Config, GPT2LMHeadModel

    where = tiny.tiny_policy(tmp_path_factory.mktemp("gpt2"))
    vocabulary = json.loads((where / "config.json").read_text())["vocab_size"]
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        GPT2LMHeadModel(config).save_pretrained(where)
    return where


@pytest.mark.parametrize("targets", ["all_linear", "attention"])
def test_another_architecture_takes_adapters_and_checkpointing(gpt2, tmp_path, targets):
    model = {"lora": {**RANK, "targets": targets}}
    plain, again = load(gpt2, **model), load(gpt2, gradient_checkpointing=True, **model)
    packed = sampled(gpt2, plain)
    trained(plain, packed)
    trained(again, packed)
    assert_same(gradients(plain, packed), gradients(again, packed))
    plain.save_folder(tmp_path)
    merged = load(tmp_path).logp(packed)
    torch.testing.assert_close(merged, plain.logp(packed), rtol=1e-9, atol=1e-9)
    assert (merged - load(gpt2).logp(packed)).abs().max() > 0.01


@pytest.mark.parametrize(
    "model",
    [
        {"lora": RANK},
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "lora": RANK, "gradient_checkpointing": True},
    ],
    ids=str,
)
def test_a_whole_run_is_finite_and_resumes_exactly(tmp_path, model):
    base = tiny.tiny_policy(tmp_path / "base")
    run = tiny.tiny_run(model=model, checkpoint__every=2)
    end, recorder = tiny.execute(run, base, tmp_path / "whole")
    assert end.state is JobState.DONE
    for row in recorder.steps:
        assert math.isfinite(row.values["loss"]) and math.isfinite(row.values["grad_norm"])
    assert recorder.steps[-1].values["kl_ref"] > 0, "nothing was learned"

    half = tiny.MemoryRecorder()

    def pause(metrics):
        return stop("half", resumable=True) if metrics.step == 2 else CONTINUE

    tiny.execute(run, base, tmp_path / "half", half, pause)
    tiny.execute(run, base, tmp_path / "half", half)
    assert half.curve() == recorder.curve()
