"""Contradictions between settings of algorithms and belts are told at plan time."""

import pytest
from pydantic import ValidationError

from stepladder.spec.run import RunSpec

WRONG = {
    "algorithm.overlong_buffer": {"algorithm": {"type": "dapo", "overlong_buffer": 64}},
    "algorithm.critic_warmup_steps": {
        "algorithm": {"type": "ppo", "critic": "head", "critic_warmup_steps": 3}
    },
    "algorithm.critic_lr": {"algorithm": {"type": "ppo", "critic": "head", "critic_lr": 1e-4}},
    "kl.coef_min": {"kl": {"coef_min": 2.0}},
    "entropy.target_low": {"entropy": {"target_low": 0.9}},
    "kl.cap_action": {"kl": {"cap_action": "raise", "controller": "schedule"}},
    "kl.target": {"kl": {"controller": "adaptive", "target": 2.0}},
    "sampling.samples_per_prompt": {
        "algorithm": {"type": "reinforce", "baseline": "group"},
        "sampling": {"samples_per_prompt": 1},
    },
}


@pytest.mark.parametrize("path", WRONG)
def test_a_contradiction_names_its_setting(path):
    with pytest.raises(ValidationError, match=rf"{path}\t.*\t"):
        RunSpec.model_validate(WRONG[path])


def test_one_sample_is_enough_without_a_group():
    for kind in ("ppo", "reinforce"):
        run = RunSpec.model_validate(
            {"algorithm": {"type": kind}, "sampling": {"samples_per_prompt": 1}}
        )
        assert run.batch_size == 16


def test_off_is_null_where_null_may_be():
    run = RunSpec.model_validate(
        {"kl": {"cap": "off"}, "algorithm": {"type": "ppo", "value_clip": "off"}, "name": "off"}
    )
    assert (run.kl.cap, run.algorithm.value_clip, run.name) == (None, None, "off")
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"kl": {"coef": "off"}})
