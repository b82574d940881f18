"""Our loss and gradient equal one training step of TRL's GRPOTrainer, as recorded from it.

`fixtures/trl/record.py` made the record; each case's settings below are how TRL's convention is
said in ours.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stepladder.core.control import Knobs
from stepladder.engine.algo.build import build_algorithm
from stepladder.engine.batch import PackedRollouts, RolloutBatch
from stepladder.engine.llama import CompactLlama
from stepladder.engine.policy import CausalPolicy, CompactBackbone
from stepladder.spec.run import RunSpec

FOLDER = Path(__file__).parents[1] / "fixtures" / "trl"
RECORDED = json.loads((FOLDER / "recorded.json").read_text(encoding="utf-8"))
TRL_STD = {"std_epsilon": 1e-4, "std_floor": 0.0, "ddof": 1}
"""TRL divides by the standard deviation plus 1e-4."""
SETTINGS = {
    "grpo": {"type": "grpo", "aggregation": "sequence_mean", **TRL_STD},
    "grpo_kl": {"type": "grpo", "aggregation": "sequence_mean", **TRL_STD},
    "dapo": {"type": "dapo", "clip_high": 0.28, **TRL_STD},
    "dapo_kl": {"type": "dapo", "clip_high": 0.28, **TRL_STD},
    # One micro-batch: TRL's bnpo, a mean over the micro-batch's tokens, is then a token mean.
    "bnpo": {"type": "grpo", "aggregation": "token_mean", **TRL_STD},
    "dr_grpo": {"type": "dr_grpo"},
    "dr_grpo_kl": {"type": "dr_grpo"},
    "gspo": {"type": "gspo", "clip_low": 0.2, "clip_high": 0.2, **TRL_STD},
    # TRL's epsilon_high of CISPO is the cap itself, ours its distance from 1; neither caps below.
    "cispo": {"type": "cispo", "clip_low": 1.0, "clip_high": 0.2, **TRL_STD},
    "entropy": {"type": "grpo", "aggregation": "token_mean", **TRL_STD},
}


def policy():
    model = CompactLlama(RECORDED["config"])
    model.load_hf_state_dict(load_file(FOLDER / "weights.safetensors"))
    return CausalPolicy(CompactBackbone(model), RECORDED["temperature"])


def packed(on_policy):
    """The recorded rollouts; with a reference where on-policy, with old log-probs elsewhere."""
    rows = RECORDED["rollouts"]
    width = max(len(row["prompt"]) + len(row["completion"]) for row in rows)
    groups = sorted({tuple(row["prompt"]) for row in rows})

    def padded(name):
        values = [
            [0.0] * len(row["prompt"])
            + row[name]
            + [0.0] * (width - len(row["prompt"]) - len(row[name]))
            for row in rows
        ]
        return torch.tensor(values)

    start_N = torch.tensor([len(row["prompt"]) for row in rows])
    length_N = start_N + torch.tensor([len(row["completion"]) for row in rows])
    places_T = torch.arange(width)
    ended_N = torch.tensor([row["completion"][-1] == 2 for row in rows])
    tokens = [row["prompt"] + row["completion"] for row in rows]
    action_NT = (places_T >= start_N[:, None]) & (places_T < length_N[:, None])
    return PackedRollouts(
        tokens_NT=torch.tensor([ids + [0] * (width - len(ids)) for ids in tokens]),
        action_NT=action_NT,
        sampler_logp_NT=padded("old_logp"),
        token_reward_NT=torch.zeros(len(rows), width),
        reward_N=torch.tensor([row["reward"] for row in rows]),
        weight_N=torch.ones(len(rows)),
        group_N=torch.tensor([groups.index(tuple(row["prompt"])) for row in rows]),
        version_N=torch.zeros(len(rows), dtype=torch.int64),
        prompt_length_N=start_N,
        length_N=length_N,
        terminal_N=ended_N,
        truncated_N=~ended_N,
        old_logp_NT=None if on_policy else padded("old_logp"),
        ref_logp_NT=padded("ref_logp") if on_policy else None,
    )


def run_of(case):
    theirs = RECORDED["cases"][case]["settings"]
    return RunSpec.model_validate(
        {
            "sampling": {
                "prompts_per_step": 2,
                "samples_per_prompt": 4,
                "max_new_tokens": RECORDED["max_new_tokens"],
                "temperature": RECORDED["temperature"],
            },
            # The step alone: TRL has no overlong penalty in its loss types.
            "algorithm": {**SETTINGS[case], "overlong": "keep"},
            "kl": {"coef": theirs.get("beta", 0.0)},
            "entropy": {"coef": theirs.get("entropy_coef", 0.0)},
        }
    )


def our_step(case):
    """Loss, gradient norm and advantages of one update on the recorded rollouts."""
    run, model = run_of(case), policy()
    algorithm, rollouts = build_algorithm(run), packed(on_policy=run.kl.coef > 0)
    credit = algorithm.advantages(rollouts)
    batch = RolloutBatch(
        packed=rollouts,
        advantage_NT=credit.advantage_NT,
        loss_weight_NT=algorithm.loss_weights(rollouts),
    )
    knobs = Knobs(kl_coef=run.kl.coef, entropy_coef=run.entropy.coef)
    terms = algorithm.loss(batch, model.logprobs(rollouts), knobs)
    found = torch.autograd.grad(terms.loss, list(model.named_parameters().values()))
    norm = torch.cat([gradient.flatten() for gradient in found]).norm()
    return terms, float(norm), credit.advantage_NT


def test_every_recorded_case_has_settings():
    assert SETTINGS.keys() == RECORDED["cases"].keys()
    assert RECORDED["versions"]["trl"] == "1.16.0"


@pytest.mark.parametrize("case", SETTINGS)
def test_loss_and_gradient_norm_equal_trl(case):
    expected = RECORDED["cases"][case]
    terms, norm, _ = our_step(case)
    assert float(terms.loss.detach()) == pytest.approx(expected["loss"], abs=1e-5)
    assert norm == pytest.approx(expected["grad_norm"], rel=1e-5, abs=1e-4)


def test_advantages_equal_trl():
    _, _, advantage_NT = our_step("grpo")
    first_N = packed(on_policy=True).prompt_length_N
    for row, recorded in enumerate(RECORDED["rollouts"]):
        found = float(advantage_NT[row, first_N[row]])
        assert found == pytest.approx(recorded["advantage"], abs=1e-5)


def test_the_record_clips_and_has_a_kl():
    terms, _, _ = our_step("grpo")
    assert terms.sums["clip_low"] > 0 < terms.sums["clip_high"]
    terms, _, _ = our_step("grpo_kl")
    assert terms.sums["kl_k3"] / terms.sums["tokens"] > 0.1
