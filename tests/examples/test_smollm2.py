"""examples/smollm2: its rows build a task with separate splits; its settings are valid."""

import importlib.util
from pathlib import Path

import pytest

from stepladder.core.answer import full_marks
from stepladder.core.prompt import Split
from stepladder.spec.load import load_spec
from stepladder.spec.run import RunSpec
from stepladder.tasks.registry import build_task

EXAMPLE = Path(__file__).parents[2] / "examples/smollm2"


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_settings_are_valid():
    run = load_spec(RunSpec, EXAMPLE / "run.toml").spec
    assert run.batch_size % (run.optim.microbatch_size or 1) == 0
    assert run.task["type"] == "rows"


@pytest.mark.extras
def test_rows_of_reasoning_gym_become_a_task_without_overlap(tmp_path):
    pytest.importorskip("reasoning_gym")
    script = load_script("make_rows")
    script.write_rows(tmp_path, num_train=40, num_eval=16)
    script.write_rows(tmp_path / "again", num_train=40, num_eval=16)
    for name in ("train.jsonl", "eval.jsonl"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    task = build_task(
        {"type": "rows", "path": "train.jsonl", "eval_path": "eval.jsonl"}, folder=tmp_path
    )
    train = {prompt.id for prompt in task.prompts(Split.TRAIN)}
    held_out = {prompt.id for prompt in task.prompts(Split.EVAL)}
    assert task.outcome == "numeric"
    assert len(held_out) == 16
    assert len(train) >= 32  # a tenth of the file is the task's holdout
    assert not train & held_out


@pytest.mark.extras
def test_worked_examples_are_in_the_format_that_is_paid():
    pytest.importorskip("reasoning_gym")
    worked = load_script("make_rows").worked("State the answer: 3 + 4 =", "7")
    assert worked == full_marks("3 + 4 = 7", "7")
