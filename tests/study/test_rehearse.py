import pytest
from factories import FakeLauncher, make_loaded, make_small_plan, make_study

from stepladder.core.errors import EnvironmentProblem, PlanError, StoreError
from stepladder.spec.load import load_spec
from stepladder.spec.study import StudySpec
from stepladder.store.study_store import StudyStore
from stepladder.study.queue import Hands
from stepladder.study.rehearse import (
    conduct,
    preset_text,
    read_plan,
    refuse_budget_change,
    require_plan,
    set_aside,
    wall_seconds,
)

SPEC = make_small_plan().spec


class Quiet:
    """A progress that says nothing."""

    def __getattr__(self, _name):
        return lambda *_args: None


def run(folder, launcher, spec=SPEC, budget_s=None):
    hands = Hands(launcher=launcher, num_slots=2, progress=Quiet(), wait=lambda _: None)
    store = StudyStore(folder)
    return conduct(make_loaded(spec), store, hands, toml_text="# mine\n", budget_s=budget_s)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLADDER_CACHE", str(tmp_path / "cache"))


def test_policies_are_warmed_up_then_costs_measured_then_cells_run(tmp_path):
    launcher = FakeLauncher()
    done = run(tmp_path / "s", launcher, budget_s=600)
    kinds = [name.split("-")[0] for name in launcher.submitted]
    assert kinds == ["warmup"] * 2 + ["cost"] * 2 + ["ladder"] * 4
    assert launcher.submitted[0] == "warmup-ladder-x2"
    assert done.plan == read_plan(StudyStore(tmp_path / "s"))
    assert done.plan.budget_s == 600
    assert all(cell.estimated_s for cell in done.plan.cells)
    assert (tmp_path / "s" / "study.toml").read_text() == "# mine\n"


def test_without_a_budget_nothing_is_measured(tmp_path):
    launcher = FakeLauncher()
    run(tmp_path / "s", launcher)
    assert not [name for name in launcher.submitted if name.startswith("cost")]


def test_a_plan_on_disk_is_used_and_never_made_anew(tmp_path):
    first = run(tmp_path / "s", FakeLauncher(), budget_s=600)
    again = FakeLauncher()
    second = run(tmp_path / "s", again, budget_s=600)
    assert second.plan == first.plan
    assert not [name for name in again.submitted if not name.startswith("warmup")]


def test_another_study_is_refused_before_anything_runs(tmp_path):
    run(tmp_path / "s", FakeLauncher())
    launcher = FakeLauncher()
    other = make_study(**{**SPEC.model_dump(mode="json"), "seeds": [1, 2, 3]})
    with pytest.raises(PlanError, match="seeds"):
        run(tmp_path / "s", launcher, spec=other)
    assert launcher.submitted == []


def test_two_queues_never_run_one_study(tmp_path):
    with StudyStore(tmp_path / "s").lock(), pytest.raises(StoreError, match="another process"):
        run(tmp_path / "s", FakeLauncher())


def test_a_warm_up_that_fails_twice_ends_the_study_with_its_reason(tmp_path):
    launcher = FakeLauncher({"warmup-ladder-x2": ["failed", "failed"]})
    with pytest.raises(EnvironmentProblem, match="warmup-ladder-x2 failed: killed"):
        run(tmp_path / "s", launcher)


def test_fresh_moves_the_old_folder_aside(tmp_path):
    for number in (1, 2):
        run(tmp_path / "s", FakeLauncher())
        assert set_aside(tmp_path / "s") == tmp_path / f"s.old-{number}"
        assert not (tmp_path / "s").exists()
    assert require_plan(StudyStore(tmp_path / "s.old-1")).spec == SPEC


def test_fresh_leaves_a_strangers_folder_and_a_running_study_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(StoreError, match="left alone"):
        set_aside(tmp_path / "mine")
    run(tmp_path / "s", FakeLauncher())
    with StudyStore(tmp_path / "s").lock(), pytest.raises(StoreError, match="being run"):
        set_aside(tmp_path / "s")
    assert set_aside(tmp_path / "nothing") is None


def test_the_budget_of_a_plan_is_fixed():
    plan = make_small_plan()
    refuse_budget_change(plan, None)
    with pytest.raises(PlanError, match="60 s"):
        refuse_budget_change(plan, 60.0)


def test_wall_time_is_summed_over_sessions(tmp_path):
    rows = [(0, "session"), (10, "ended"), (1000, "session"), (1005, "ended")]
    text = "".join(f'{{"t": {t}, "kind": "{kind}"}}\n' for t, kind in rows)
    (tmp_path / "events.jsonl").write_text(text)
    assert wall_seconds(StudyStore(tmp_path)) == 15


def test_the_packaged_rehearsal_is_a_study(tmp_path):
    (tmp_path / "study.toml").write_text(preset_text())
    spec = load_spec(StudySpec, tmp_path / "study.toml").spec
    assert len(spec.axes.model) == 3
    assert len(spec.seeds) >= 3
