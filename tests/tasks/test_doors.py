"""A stranger's task: by dotted path beside the study, and faults that name the plug-in."""

from pathlib import Path

import pytest

from stepladder.core.errors import PluginError
from stepladder.core.prompt import Split
from stepladder.tasks.registry import TASKS, build_task
from stepladder.testing.tasks import check_hash_seeds, check_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_task"
MAPPING = {"use": "parity:Parity", "length": 8}


def test_the_example_task_passes_the_check():
    task = build_task(MAPPING, folder=EXAMPLE)
    assert task.name == "parity"
    check_task(task, num_prompts=60)
    assert check_hash_seeds(MAPPING, EXAMPLE).passed


@pytest.mark.parametrize(
    ("source", "use", "message"),
    [
        ("def make():\n    return 3\n", "make", "SL0503 .*'strange_a:make' gave a int"),
        ("def make():\n    raise OSError('gone')\n", "make", "SL0501 .*raised OSError: gone"),
        ("x = 1\n", "missing", "SL0502 .*by dotted path"),
    ],
)
def test_faults_of_strangers_are_named(tmp_path, monkeypatch, source, use, message):
    import sys

    monkeypatch.delitem(sys.modules, "strange_a", raising=False)
    (tmp_path / "strange_a.py").write_text(source)
    with pytest.raises(PluginError, match=message):
        build_task({"use": f"strange_a:{use}"}, folder=tmp_path)
    monkeypatch.delitem(sys.modules, "strange_a", raising=False)


def test_a_ready_task_and_a_registered_name(monkeypatch):
    monkeypatch.setattr(TASKS, "_added", {})
    ready = build_task({"type": "letters", "num_train": 5, "num_eval": 5, "num_holdout": 5})
    TASKS.register("ready-for-tests")(ready)
    assert build_task({"type": "ready-for-tests"}).prompts(Split.EVAL) == ready.prompts(Split.EVAL)
