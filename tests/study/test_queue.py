import pytest
from factories import FakeFolder, FakeLauncher, make_cell, make_small_plan, write_run

from stepladder.core.job import JobKind
from stepladder.study.collect import cell_folder, read_run
from stepladder.study.guard import StopRequests, stop_file
from stepladder.study.queue import Hands, cell_job, run_order, run_plan


class Heard:
    """A progress that remembers."""

    def __init__(self, at_tick=None):
        self.lines = []
        self._at_tick = at_tick

    def begin(self, num_jobs, num_finished, estimated_s):
        self.lines.append(("begin", num_jobs, num_finished, estimated_s))

    def note(self, text):
        self.lines.append(("note", text))

    def started(self, name):
        self.lines.append(("started", name))

    def ended(self, name, state, seconds, detail):
        self.lines.append(("ended", name, state, detail))

    def tick(self, running):
        if self._at_tick:
            self._at_tick(running)

    def of(self, kind):
        return [line for line in self.lines if line[0] == kind]


def conduct(plan, folder, launcher, at_tick=None, requests=None):
    heard, store = Heard(at_tick), FakeFolder(folder)
    hands = Hands(
        launcher=launcher,
        num_slots=2,
        progress=heard,
        requests=requests or StopRequests(),
        wait=lambda _: None,
    )
    return run_plan(plan, store, hands), heard, store


def test_every_cell_runs_once_in_two_slots(tmp_path):
    plan, launcher = make_small_plan(), FakeLauncher()
    end, heard, store = conduct(plan, tmp_path, launcher)
    assert sorted(launcher.submitted) == sorted(cell.id for cell in plan.cells)
    assert launcher.most_at_once == 2
    assert (end.failed, end.unfinished, end.interrupted) == ({}, 0, "")
    assert [e["kind"] for e in store.events].count("ended") == 4
    assert heard.of("ended")[0][3] == "pass@1 0.250 -> 0.625"


def test_finished_cells_are_never_repeated(tmp_path):
    plan, launcher = make_small_plan(), FakeLauncher()
    write_run(cell_folder(tmp_path, plan.cells[0]), plan.cells[0].run)
    write_run(cell_folder(tmp_path, plan.cells[1]), plan.cells[1].run, state="stopped")
    _, heard, _ = conduct(plan, tmp_path, launcher)
    assert sorted(launcher.submitted) == sorted(cell.id for cell in plan.cells[2:])
    assert heard.of("begin") == [("begin", 4, 2, None)]


def test_a_folder_of_another_run_or_a_running_one_is_not_finished(tmp_path):
    plan, launcher = make_small_plan(), FakeLauncher()
    write_run(cell_folder(tmp_path, plan.cells[0]), plan.cells[1].run)
    write_run(cell_folder(tmp_path, plan.cells[1]), plan.cells[1].run, state="running")
    conduct(plan, tmp_path, launcher)
    assert len(launcher.submitted) == 4


def test_a_failed_cell_is_tried_once_more(tmp_path):
    plan = make_small_plan()
    victim = plan.cells[0].id
    launcher = FakeLauncher({victim: ["failed", "done"]})
    end, _, store = conduct(plan, tmp_path, launcher)
    assert launcher.submitted.count(victim) == 2
    assert end.failed == {}
    assert [e["attempt"] for e in store.events if e["job"] == victim] == [1, 1, 2, 2]


def test_a_cell_that_fails_twice_is_marked_and_the_rest_goes_on(tmp_path):
    plan = make_small_plan()
    victim = plan.cells[0]
    launcher = FakeLauncher({victim.id: ["failed", "failed"]})
    end, _, _ = conduct(plan, tmp_path, launcher)
    assert end.failed == {victim.id: "killed"}
    assert read_run(cell_folder(tmp_path, victim))["state"] == "failed"
    assert len(set(launcher.submitted)) == 4


def test_a_marked_cell_is_tried_again_by_the_next_command(tmp_path):
    plan = make_small_plan()
    victim = plan.cells[0].id
    conduct(plan, tmp_path, FakeLauncher({victim: ["failed", "failed"]}))
    again = FakeLauncher()
    end, _, _ = conduct(plan, tmp_path, again)
    assert again.submitted == [victim]
    assert end.failed == {}


def test_a_stopped_cell_is_finished_with_its_reason(tmp_path):
    plan = make_small_plan()
    victim = plan.cells[0].id
    end, heard, _ = conduct(plan, tmp_path, FakeLauncher({victim: ["stopped"]}))
    assert ("ended", victim, "stopped", "validation") in heard.lines
    assert end.failed == {}


def test_a_stop_file_drains_and_the_next_command_clears_it(tmp_path):
    plan, launcher = make_small_plan(), FakeLauncher()
    end, _, _ = conduct(plan, tmp_path, launcher, at_tick=lambda _: stop_file(tmp_path).touch())
    assert len(launcher.submitted) == 2
    assert (end.interrupted, end.unfinished) == ("drain", 2)
    assert launcher.cancelled == []
    again = FakeLauncher()
    end, _, _ = conduct(plan, tmp_path, again)
    assert len(again.submitted) == 2
    assert end.unfinished == 0


def test_a_cell_that_a_drain_put_on_hold_is_not_a_failure(tmp_path):
    plan = make_small_plan()
    held = run_order(plan.cells)[0].id
    end, heard, _ = conduct(
        plan,
        tmp_path,
        FakeLauncher({held: ["pending"]}),
        at_tick=lambda _: stop_file(tmp_path).touch(),
    )
    assert end.failed == {}
    assert end.unfinished == 3
    assert heard.of("note") == []


def test_two_interrupts_end_what_runs(tmp_path):
    requests = StopRequests()
    plan = make_small_plan()
    launcher = FakeLauncher({cell.id: ["hangs"] for cell in plan.cells})

    def interrupt(_running):
        requests.count += 1

    end, _, store = conduct(plan, tmp_path, launcher, at_tick=interrupt, requests=requests)
    assert len(launcher.cancelled) == 2
    assert (end.interrupted, end.unfinished) == ("stop", 4)
    assert store.events[-1] == {"kind": "stop", "unfinished": 4}


def test_ctrl_c_is_counted_inside_the_block_only():
    import signal

    requests, before = StopRequests(), signal.getsignal(signal.SIGINT)
    with requests.listening():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert requests.count == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_the_longest_cell_starts_first():
    plan = make_small_plan()
    lengths = [cell.ratios["model"] for cell in run_order(plan.cells)]
    assert lengths == [2.0, 2.0, 1.0, 1.0]


def test_a_job_holds_the_whole_run(tmp_path):
    cell = make_cell()
    job = cell_job(make_small_plan(), cell, tmp_path)
    assert job.kind is JobKind.RUN
    assert job.folder == tmp_path / "runs" / cell.id
    assert type(cell.run).model_validate(job.payload["run"]) == cell.run


@pytest.mark.parametrize("state", ["failed", "running", "pending"])
def test_unfinished_states_run_again(tmp_path, state):
    plan, launcher = make_small_plan(), FakeLauncher()
    for cell in plan.cells:
        write_run(cell_folder(tmp_path, cell), cell.run, state=state)
    conduct(plan, tmp_path, launcher)
    assert len(launcher.submitted) == 4
