"""Where base policies lie, and that two processes never build one twice."""

import multiprocessing
from pathlib import Path

import pytest

from stepladder.core.errors import SpecError
from stepladder.launch.base_policy import base_policy_folder, ensure_base_policy

TASK = {"type": "arithmetic"}


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("STEPLADDER_CACHE", str(tmp_path / "cache"))


def fake_build(_size, _recipe, target):
    target.mkdir(parents=True)
    with (target.parent.parent / "builds").open("a") as log:
        log.write("built\n")
    (target / "config.json").write_text("{}")


def test_the_key_follows_size_and_task():
    one = base_policy_folder("ladder-x1", TASK)
    assert one == base_policy_folder("ladder-x1", dict(TASK))
    assert one != base_policy_folder("ladder-x2", TASK)
    assert one != base_policy_folder("ladder-x1", {"type": "countdown"})


def test_the_key_follows_the_content_of_named_files(tmp_path):
    task = {"type": "rows", "path": "rows.jsonl"}
    (tmp_path / "rows.jsonl").write_text("1")
    one = base_policy_folder("ladder-x1", task, tmp_path)
    (tmp_path / "rows.jsonl").write_text("2")
    assert base_policy_folder("ladder-x1", task, tmp_path) != one


def test_a_local_model_is_returned_as_it_is(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    path = str(tmp_path / "model")
    assert base_policy_folder(path, TASK) == Path(path)
    assert ensure_base_policy("model", TASK, fake_build, tmp_path) == Path(path)


def test_a_missing_local_model_is_one_clear_error():
    with pytest.raises(SpecError, match="no model at 'nowhere'"):
        ensure_base_policy("nowhere", TASK, fake_build)


def test_a_built_policy_is_not_built_again(tmp_path):
    folder = ensure_base_policy("ladder-x1", TASK, fake_build)
    assert ensure_base_policy("ladder-x1", TASK, fake_build) == folder
    assert (tmp_path / "cache" / "builds").read_text() == "built\n"


def _ensure():
    ensure_base_policy("ladder-x1", TASK, fake_build)


def test_two_processes_build_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_ensure) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
        child.close()
    assert (tmp_path / "cache" / "builds").read_text() == "built\n"
