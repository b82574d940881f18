"""Killed at a random step and resumed, 50 further steps are bit-identical; less is asked for."""

import random

import pytest
import tiny
import torch
from safetensors.torch import load_file

from stepladder.core.control import Action
from stepladder.core.errors import StoreError
from stepladder.core.job import JobState

FURTHER = 50
SETTINGS = {
    "grpo": {"kl__controller": "adaptive", "kl__target": 0.01, "entropy__controller": "adaptive"},
    "grpo, many updates": {
        "algorithm": {"type": "grpo", "updates_per_batch": 2, "clip_high": 0.28},
        "optim__minibatch_size": 8,
        "optim__clip": "quantile",
        "kl__reference": "ema",
        "kl__budget": 50.0,
    },
    "ppo": {"algorithm": {"type": "ppo", "critic_warmup_steps": 2}, "kl__placement": "reward"},
    "ppo, value head": {"algorithm": {"type": "ppo", "critic": "head", "updates_per_batch": 2}},
    "reinforce, running": {"algorithm": {"type": "reinforce", "statistics": "running"}},
    "lora": {"model": {"lora": {"rank": 2, "alpha": 4.0}}, "kl__reference": "refresh"},
    "bfloat16": {"model": {"dtype": "bfloat16"}},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.tiny_policy(tmp_path_factory.mktemp("policy"))


def die_at(step):
    def observe(metrics):
        if metrics.step == step:
            raise KeyboardInterrupt
        return Action()

    return observe


def killed(run, model, folder, step):
    recorder = tiny.MemoryRecorder()
    with pytest.raises(KeyboardInterrupt):
        tiny.execute(run, model, folder, recorder, die_at(step))
    return recorder


@pytest.mark.parametrize("name", SETTINGS)
def test_fifty_steps_after_a_kill_are_bit_identical(model, tmp_path, name):
    if name == "lora":
        pytest.importorskip("peft")
    step = random.Random(name).randrange(3, 9)
    run = tiny.tiny_run(
        budget__steps=step + FURTHER,
        eval__every=20,
        optim__lr=2e-3,
        optim__schedule="cosine",
        **SETTINGS[name],
    )
    _, straight = tiny.execute(run, model, tmp_path / "straight")
    recorder = killed(run, model, tmp_path / "resumed", step)
    end, recorder = tiny.execute(run, model, tmp_path / "resumed", recorder)
    assert end.state is JobState.DONE
    assert recorder.curve() == straight.curve()
    first, second = (
        load_file(tmp_path / which / "policy" / "model.safetensors")
        for which in ("straight", "resumed")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)


def without_moments(folder):
    for path in folder.glob("checkpoints/*/optimizer.safetensors"):
        path.unlink()


def test_without_optimiser_state_a_run_goes_on_only_when_told(model, tmp_path):
    run = tiny.tiny_run(budget__steps=12)
    _, straight = tiny.execute(run, model, tmp_path / "straight")
    recorder = killed(run, model, tmp_path / "a", 8)
    without_moments(tmp_path / "a")
    with pytest.raises(StoreError, match="--reset-optimizer"):
        tiny.execute(run, model, tmp_path / "a", recorder)
    _, reset = tiny.execute(run, model, tmp_path / "a", recorder, reset_optimizer=True)
    assert [kind for kind, step, _ in reset.events if step == 6].count("optimizer_reset") == 1
    rows, expected = reset.curve()[0], straight.curve()[0]
    assert rows[:6] == expected[:6]
    assert rows[6:] != expected[6:]
