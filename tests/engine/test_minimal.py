"""The teaching copy gives the engine's first-step loss and gradient norm."""

import importlib.util
from pathlib import Path

import pytest
import tiny
import torch

from stepladder.engine.load import load_policy


def minimal():
    path = Path(__file__).parents[2] / "examples" / "minimal_grpo.py"
    spec = importlib.util.spec_from_file_location("minimal_grpo", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_first_step_equals_the_engine(tmp_path):
    example = minimal()
    base = tiny.tiny_policy(tmp_path / "base", seed=0)
    other = tiny.tiny_policy(tmp_path / "other", seed=1)
    run = tiny.tiny_run(record={"rollouts_every": 1}, budget__steps=3)
    # The reference differs from the policy, so that the KL term is not zero at the first step.
    with pytest.MonkeyPatch.context() as patch:
        import stepladder.engine.run as engine_run

        build = engine_run.build_reference
        patch.setattr(
            engine_run,
            "build_reference",
            lambda policy, run: build(load_policy(other, run.model, 1.0), run),
        )
        _, recorder = tiny.execute(run, base, tmp_path / "run")
    groups = recorder.dumps[0][1]
    completions = [r.completion for group in groups for r in group.rollouts]
    batch = example.pack(
        [c.prompt_token_ids for c in completions], [c.token_ids for c in completions]
    )
    reward_PG = torch.tensor([group.rewards for group in groups])
    model, reference = example.load(base), example.load(other)
    adam = torch.optim.AdamW(model.parameters(), lr=run.optim.lr)
    loss, norm = example.train_step(model, reference, adam, *batch, reward_PG, example.Settings())
    values = recorder.steps[0].values
    assert loss == pytest.approx(values["loss"], abs=1e-5)
    assert norm == pytest.approx(values["grad_norm"], rel=1e-5)
    assert values["kl_ref"] > 0.01


def test_it_stays_one_short_file():
    path = Path(__file__).parents[2] / "examples" / "minimal_grpo.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150


def test_its_sampler_ends_at_the_first_end_of_sequence(tmp_path):
    example = minimal()
    model = example.load(tiny.tiny_policy(tmp_path / "base"))
    settings = example.Settings(samples_per_prompt=50, max_new_tokens=20)
    generator = torch.Generator().manual_seed(0)
    drawn = example.sample(model, [1, 20, 21], 2, settings, generator)
    assert len(drawn) == 50
    assert all(2 not in ids[:-1] and len(ids) <= 20 for ids in drawn)
    assert any(ids[-1] == 2 for ids in drawn)
