"""The study folder, the cache and provenance."""

import subprocess

import pytest

from stepladder.core.errors import StoreError
from stepladder.spec.study import FORMAT_VERSION
from stepladder.store import layout
from stepladder.store.cache import cache_folder
from stepladder.store.provenance import git_state, provenance
from stepladder.store.study_store import StudyStore

PLAN = {"format_version": FORMAT_VERSION, "plan_id": "p"}


def test_a_plan_comes_back(tmp_path):
    store = StudyStore(tmp_path / "new" / "study")
    assert store.read_plan() is None
    store.write_plan(PLAN, 'name = "x"\n')
    assert store.read_plan() == PLAN
    assert store.toml_path.read_text() == 'name = "x"\n'


def test_a_study_of_another_version_is_refused_with_exit_2(tmp_path):
    store = StudyStore(tmp_path)
    store.write_plan({**PLAN, "format_version": FORMAT_VERSION + 1})
    with pytest.raises(StoreError, match="format") as caught:
        store.read_plan()
    assert caught.value.exit_code == 2


def test_stop_is_a_file_that_the_runs_see(tmp_path):
    store = StudyStore(tmp_path)
    assert not store.stop_requested()
    store.request_stop()
    assert any(path.exists() for path in layout.stop_files(store.run_folder("cell")))
    store.clear_stop()
    assert not store.stop_requested()


def test_only_one_process_runs_a_study(tmp_path):
    store = StudyStore(tmp_path)
    with store.lock():
        assert store.is_running()
        with pytest.raises(StoreError, match="another process"), store.lock():
            pass
    assert not store.is_running()


def test_events_survive_a_torn_tail(tmp_path):
    store = StudyStore(tmp_path)
    store.event("launched", cell="a")
    with (tmp_path / layout.EVENTS).open("a") as stream:
        stream.write('{"t":1,"ki')
    store.event("ended", cell="a")
    assert [event["kind"] for event in store.events()] == ["launched", "ended"]


def test_fresh_leaves_the_users_files(tmp_path):
    store = StudyStore(tmp_path)
    store.write_plan(PLAN, "name = 'x'\n")
    (store.run_folder("cell")).mkdir(parents=True)
    (tmp_path / "mine.py").write_text("")
    store.clear()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.py", "study.toml"]


def test_the_cache_is_where_the_variables_say(monkeypatch, tmp_path):
    monkeypatch.setenv("STEPLADDER_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("STEPLADDER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "stepladder"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder().is_absolute()


def test_provenance_names_versions_and_no_paths(tmp_path):
    found = provenance()
    assert found["package_version"]
    assert set(found["libraries"]) >= {"torch", "numpy"}
    assert found["host"]["cores"] >= 1
    assert str(tmp_path) not in str(found)


def test_code_inside_somebody_elses_repository_has_no_commit(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "__init__.py").write_text("")
    assert git_state(tmp_path) is None


def test_what_killed_writers_left_is_swept(tmp_path):
    store = StudyStore(tmp_path)
    run = tmp_path / "runs" / "a"
    (run / "checkpoints" / ".step-000010.123").mkdir(parents=True)
    for name in (".job.json.4567.tmp", "job.json", ".hidden"):
        (run / name).touch()
    assert store.sweep() == 2
    assert sorted(p.name for p in run.rglob("*")) == [".hidden", "checkpoints", "job.json"]
