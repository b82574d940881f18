"""`export` writes what a run trained, complete or not at all, and says why when it cannot."""

import json

import pytest
import tiny
import torch
from safetensors.torch import load_file

from stepladder.cli.main import run_command
from stepladder.engine.checkpoint import CheckpointStore
from stepladder.engine.export import export_checkpoint
from stepladder.engine.load import load_policy
from stepladder.spec.base import flatten
from stepladder.spec.run import ModelSpec


@pytest.fixture
def base(tmp_path):
    return tiny.tiny_policy(tmp_path / "base")


@pytest.fixture
def run(tmp_path, base):
    """A run folder with two checkpoints and a trained policy, each of other weights."""
    folder = tmp_path / "run"
    folder.mkdir()
    settings = flatten({"model": {"path": str(base), "lora": None}, "task": {"type": "arithmetic"}})
    (folder / "run.json").write_text(json.dumps({"settings": settings}))
    tiny.tiny_policy(folder / "policy", seed=9)
    store = CheckpointStore(folder / "checkpoints", keep=5)
    for step, score in ((1, 0.9), (2, 0.4)):
        policy = load_policy(tiny.tiny_policy(tmp_path / f"at-{step}", seed=step), ModelSpec(), 1.0)
        head = {"value_head.weight": torch.ones(1, 16)}
        weights = {**policy.named_parameters(), **(head if step == 2 else {})}
        store.save(step, {"weights": weights}, {}, score)
    return folder


def same_model(one, other):
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def refused(capsys, *words):
    assert run_command(["export", *map(str, words)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_without_a_checkpoint_the_trained_policy_is_copied(run, tmp_path, capsys):
    out = tmp_path / "deep" / "mine"
    assert run_command(["export", str(run), "--out", str(out)]) == 0
    assert same_model(out, run / "policy")
    assert sorted(p.name for p in out.iterdir()) == sorted(
        p.name for p in (run / "policy").iterdir()
    )
    assert str(out) in capsys.readouterr().out


def test_the_best_checkpoint_becomes_a_loadable_folder_with_tokenizer(run, tmp_path, capsys):
    out = tmp_path / "best"
    words = ["export", str(run), "--checkpoint", "best", "--out", str(out), "--json"]
    assert run_command(words) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"] == "step-000001"
    assert same_model(out, tmp_path / "at-1")
    assert (out / "tokenizer.json").is_file()
    load_policy(out, ModelSpec(), 1.0)


def test_a_named_checkpoint_leaves_the_critics_head_out(run, base, tmp_path):
    out = tmp_path / "out"
    name = export_checkpoint(run / "checkpoints", "step-000002", base, ModelSpec(), out)
    assert name == "step-000002"
    assert same_model(out, tmp_path / "at-2")


def test_bad_requests_are_refused_with_what_to_do(run, tmp_path, capsys):
    out = tmp_path / "out"
    line = refused(capsys, run, "--out", out, "--checkpoint", "step-7")
    assert "has no checkpoint 'step-7'; it has step-000002, step-000001" in line
    assert "SL0243" in refused(capsys, tmp_path / "nothing", "--out", out)
    assert "is there already" in refused(capsys, run, "--out", run)
    line = refused(capsys, run, "--out", out, "--checkpoint", "best", "--model", tmp_path)
    assert "no model at" in line
    (run / "policy" / "config.json").unlink()
    assert "--checkpoint step-000002" in refused(capsys, run, "--out", out)
    assert not out.exists()


def test_a_base_model_that_is_gone_is_named_unless_the_run_has_its_own(run, base, tmp_path, capsys):
    for path in base.iterdir():
        path.unlink()
    out = tmp_path / "out"
    assert run_command(["export", str(run), "--checkpoint", "best", "--out", str(out)]) == 0
    assert same_model(out, tmp_path / "at-1")
    (run / "policy" / "config.json").unlink()
    again = tmp_path / "again"
    assert "--model FOLDER" in refused(capsys, run, "--out", again, "--checkpoint", "best")


def test_damage_and_another_model_are_errors_that_leave_nothing_behind(run, tmp_path, capsys):
    other = tiny.tiny_policy(tmp_path / "other", hidden_size=32)
    out = tmp_path / "out"
    words = (run, "--out", out, "--checkpoint", "step-000001")
    assert "another model" in refused(capsys, *words, "--model", other)
    (run / "checkpoints/step-000001/weights.safetensors").write_bytes(b"no")
    assert "does not match its hash" in refused(capsys, *words)
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))
