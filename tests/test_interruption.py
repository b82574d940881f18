"""Studies in real processes, killed with SIGKILL: the same command goes on to the same numbers.

Moments are found by watching the study's files. Where a busy machine lets a moment slip by, the
kill lands a little later, which is as good a moment to be killed at.
"""

import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tiny import tiny_policy

from stepladder.store import layout
from stepladder.store.run_store import RunStore
from stepladder.store.study_store import StudyStore

pytestmark = pytest.mark.slow

PATIENCE_S = 300
"""Only a bound on a hanging test; nothing is asserted about time."""
BUDGET = ("--budget", "1h")
"""So ample that it trims nothing; costs are measured before there is a plan."""
VERDICTS = {0, 4, 5}
SOME_FAILED = 6
STUDY = """
name = "small"
seeds = [1]
[base.task]
type = "letters"
[base.reward.weights]
length = 0.05
[base.sampling]
prompts_per_step = 4
samples_per_prompt = 4
max_new_tokens = 16
[base.optim]
warmup_steps = 2
lr = 0.001
[base.eval]
every = 15
num_prompts = 16
[base.checkpoint]
every = 10
[base.validation]
steps = 15
[base.record]
rollouts_every = 7
[base.budget]
steps = 40
[axes]
model = ["policy"]
samples_per_prompt = [4, 2]
steps = [0.5, 1.0]
[long_run]
ratio = 1.5
[launch]
slots = 2
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with a tiny policy and a study of three cells."""
    folder = tmp_path_factory.mktemp("home")
    tiny_policy(folder / "policy")
    (folder / "study.toml").write_text(STUDY)
    return folder


@pytest.fixture(scope="module")
def reference(home):
    """Return the folder of an uninterrupted study."""
    with study_process(home, "reference") as process:
        assert process.wait(PATIENCE_S) in VERDICTS
    return home / "reference"


@contextlib.contextmanager
def study_process(home, out, *options):
    """Start the study's command in a process of its own; it is killed when the block is left."""
    command = [sys.executable, "-m", "stepladder", "run", "study.toml", "--out", out, *options]
    with (home / f"{out}.log").open("ab") as log:
        process = psutil.Popen(
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        wait_until(lambda: not workers(home / out))


def wait_until(condition, process=None):
    """Wait for a condition on files; with a process, only as long as it lives."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert process is None or process.poll() is None, "the study ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.002)
    return found


def workers(folder, cell=""):
    """Return the living processes that work in a study folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or ()
        job = next((word for word in words if word.endswith(layout.JOB)), "")
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if alive and folder.name in Path(job).parts and cell in job:
            found.append(process)
    return found


def kill_when(moment, home, out, *options):
    """Start the study, kill it at a moment, and see that its workers die with it."""
    with study_process(home, out, *options) as process:
        wait_until(lambda: moment(home / out), process)
        process.kill()
        process.wait()
        wait_until(lambda: not workers(home / out))


def run_folders(folder):
    return sorted((folder / layout.RUNS).glob("*"))


def checkpoints(run):
    return list((run / layout.CHECKPOINTS).glob("step-*"))


def state(run):
    path = run / layout.RUN
    return json.loads(path.read_bytes())["state"] if path.exists() else ""


def measuring_costs(folder):
    return list(folder.glob(f"setup/*/measured/{layout.METRICS}"))


def plan_written(folder):
    return (folder / layout.PLAN).exists()


def before_a_checkpoint(folder):
    return [
        run
        for run in run_folders(folder)
        if (run / layout.METRICS).exists() and not checkpoints(run)
    ]


def after_a_checkpoint(folder):
    return [run for run in run_folders(folder) if checkpoints(run) and state(run) == "running"]


def ended_cells(folder):
    cells = {run.name for run in run_folders(folder)}
    return [
        event["job"]
        for event in StudyStore(folder).events()
        if event["kind"] == "ended" and event["job"] in cells and event["state"] == "done"
    ]


def all_ended(folder):
    # Not by events: a study that is killed cannot say that a cell has ended.
    return [state(run) for run in run_folders(folder)] == ["done"] * 3


def rows(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "sys"} for row in found]


def content(run):
    """Return everything reproducible that a run wrote."""
    dumps = sorted((run / layout.ROLLOUTS).iterdir())
    return {
        layout.METRICS: rows(run / layout.METRICS),
        layout.EVALS: rows(run / layout.EVALS),
        "dumps": {path.name: gzip.decompress(path.read_bytes()) for path in dumps},
        "policy": (run / "policy" / "model.safetensors").read_bytes(),
        "checkpoints": sorted(path.name for path in checkpoints(run)),
    }


def assert_same_study(folder, reference):
    """Compare plans and every cell's records and weights."""
    plans = [StudyStore(each).read_plan() for each in (folder, reference)]
    assert plans[0]["plan_id"] == plans[1]["plan_id"]
    assert [cell["run"] for cell in plans[0]["cells"]] == [
        cell["run"] for cell in plans[1]["cells"]
    ]
    names = [run.name for run in run_folders(reference)]
    assert [run.name for run in run_folders(folder)] == names
    assert len(names) == 3
    for name in names:
        whole = content(reference / layout.RUNS / name)
        again = content(folder / layout.RUNS / name)
        assert len(whole[layout.METRICS]) in (40, 60)
        for part, expected in whole.items():
            assert again[part] == expected, f"{part} of {name}"
    assert (folder / layout.REPORT / "verdict.json").exists()
    assert not [path for path in folder.rglob("*") if path.name.endswith((".tmp", ".partial"))]


def assert_nothing_repeated(folder):
    """No cell was started again after it had ended well."""
    done = set()
    for event in StudyStore(folder).events():
        if event["kind"] == "started":
            assert event["job"] not in done
        elif event["kind"] == "ended" and event["state"] == "done":
            done.add(event["job"])


def num_sessions(run):
    return len(json.loads((run / layout.RUN).read_bytes())["sessions"])


def resumed(folder):
    """Return the steps from which cells went on."""
    return [
        event["step"]
        for run in run_folders(folder)
        for event in RunStore(run).events()
        if event["kind"] == "resumed"
    ]


def test_a_study_killed_at_every_kind_of_moment_ends_like_an_uninterrupted_one(home, reference):
    out, folder = "killed", home / "killed"
    kill_when(measuring_costs, home, out, *BUDGET)
    assert not plan_written(folder)
    kill_when(plan_written, home, out, *BUDGET)
    plan = (folder / layout.PLAN).read_bytes()
    kill_when(before_a_checkpoint, home, out, *BUDGET)
    kill_when(after_a_checkpoint, home, out, *BUDGET)
    kill_when(ended_cells, home, out, *BUDGET)
    finished = {run: (run / layout.RUN).read_bytes() for run in run_folders(folder)}
    finished = {run: text for run, text in finished.items() if state(run) == "done"}
    assert finished
    kill_when(all_ended, home, out, *BUDGET)
    with study_process(home, out, *BUDGET) as process:
        assert process.wait(PATIENCE_S) in VERDICTS
    assert (folder / layout.PLAN).read_bytes() == plan
    assert {run: (run / layout.RUN).read_bytes() for run in finished} == finished
    assert_nothing_repeated(folder)
    assert any(step > 0 for step in resumed(folder))
    assert max(num_sessions(run) for run in run_folders(folder)) > 1
    assert_same_study(folder, reference)


def test_a_cell_whose_worker_is_killed_goes_on_now_and_with_the_next_command(home, reference):
    out, folder = "workers", home / "workers"
    folder.mkdir()
    for name in (layout.PLAN, layout.STUDY_TOML):
        (folder / name).write_bytes((reference / name).read_bytes())
    cell = next(run.name for run in run_folders(reference) if "long" in run.name)
    run = folder / layout.RUNS / cell
    with study_process(home, out) as process:
        wait_until(lambda: run in before_a_checkpoint(folder), process)
        first = kill_worker(folder, cell)
        wait_until(lambda: num_sessions(run) == 2 and checkpoints(run), process)
        assert kill_worker(folder, cell) != first
        assert process.wait(PATIENCE_S) == SOME_FAILED
    assert state(run) == "failed"
    assert "SIGKILL" in json.loads((run / layout.RUN).read_bytes())["reason"]
    others = {each: num_sessions(each) for each in run_folders(folder) if each != run}
    assert set(others.values()) == {1}
    with study_process(home, out) as process:
        assert process.wait(PATIENCE_S) in VERDICTS
    assert {each: num_sessions(each) for each in others} == others
    assert num_sessions(run) == 3
    assert resumed(folder)
    assert_nothing_repeated(folder)
    assert_same_study(folder, reference)


def kill_worker(folder, cell):
    """Kill the process of one cell and return its id."""
    (worker,) = workers(folder, cell)
    os.kill(worker.pid, 9)
    return worker.pid
