"""Real workers on a tiny policy: the whole path from job.json to a finished run folder."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from stepladder.core.job import Job, JobKind, JobState
from stepladder.launch.local import LocalLauncher
from stepladder.launch.worker import cost_run
from stepladder.spec.run import RunSpec
from stepladder.store import layout
from stepladder.store.run_store import RunStore

PATIENCE_S = 300
"""Only a bound on a hanging test; nothing is asserted about time."""


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    from stepladder.engine.llama import CompactLlama
    from stepladder.engine.warmup import write_policy_folder
    from stepladder.spec.ladder import LADDER, ladder_config

    folder = tmp_path_factory.mktemp("model") / "policy"
    write_policy_folder(
        CompactLlama.from_config(ladder_config(LADDER["ladder-x1"]), seed=0), folder
    )
    return folder


def a_run(model_folder, steps=6, seed=1):
    return RunSpec.model_validate(
        {
            "seed": seed,
            "model": {"path": str(model_folder)},
            "sampling": {"prompts_per_step": 2, "samples_per_prompt": 2, "max_new_tokens": 4},
            "optim": {"warmup_steps": 0},
            "eval": {"every": 2, "num_prompts": 4},
            "checkpoint": {"every": 2},
            "record": {"rollouts_every": 3},
            "budget": {"steps": steps},
        }
    )


def a_job(folder, run, kind=JobKind.RUN):
    return Job(
        kind=kind, id=folder.name, folder=folder, payload={"run": run.model_dump(mode="json")}
    )


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def run_to_end(launcher, job):
    handle = launcher.submit(job)
    wait_for(lambda: launcher.poll(handle).state is not JobState.RUNNING)
    return launcher.poll(handle)


def rows(folder, name):
    lines = (folder / name).read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [{key: value for key, value in row.items() if key != "sys"} for row in found]


def same_records(one, other):
    return all(rows(one, name) == rows(other, name) for name in (layout.METRICS, layout.EVALS))


@pytest.fixture
def launcher():
    made = LocalLauncher(threads=1, grace_s=PATIENCE_S)
    yield made
    made.close()


def test_a_run_a_killed_run_and_a_drained_run_have_equal_records(tmp_path, launcher, model_folder):
    run = a_run(model_folder, steps=40)
    study = tmp_path / "study"
    whole, killed, drained = (study / layout.RUNS / name for name in ("whole", "killed", "drained"))
    status = run_to_end(launcher, a_job(whole, run))
    assert (status.state, status.exit_code) == (JobState.DONE, 0), status.reason
    record = RunStore(whole).record()
    assert record.steps.tolist() == list(range(1, 41))
    header = RunStore(whole).header()
    assert header["num_parameters"] > 0
    assert header["run_id"] == run.run_id
    assert header["seeds"] == {"run": 1}

    handle = launcher.submit(a_job(killed, run))
    wait_for(lambda: (killed / layout.CHECKPOINTS / "step-000006").exists())
    os.kill(launcher._children[handle].process.pid, signal.SIGKILL)
    wait_for(lambda: launcher.poll(handle).state is not JobState.RUNNING)
    status = launcher.poll(handle)
    assert status.state is JobState.FAILED
    assert "SIGKILL" in status.reason
    assert RunStore(killed).status().state is JobState.PENDING
    assert run_to_end(launcher, a_job(killed, run)).state is JobState.DONE
    assert same_records(whole, killed)
    assert len(RunStore(killed).record().lineage) == 2

    handle = launcher.submit(a_job(drained, run))
    wait_for(lambda: len(RunStore(drained).steps()) > 3)
    (study / layout.STOP).touch()
    wait_for(lambda: launcher.poll(handle).state is not JobState.RUNNING)
    assert launcher.poll(handle).reason == "asked to stop"
    assert RunStore(drained).status().state is JobState.PENDING
    (study / layout.STOP).unlink()
    assert run_to_end(launcher, a_job(drained, run)).state is JobState.DONE
    assert same_records(whole, drained)


def test_another_seed_differs_and_a_finished_run_is_left_alone(tmp_path, launcher, model_folder):
    one, other = tmp_path / "one", tmp_path / "other"
    run_to_end(launcher, a_job(one, a_run(model_folder, 2, seed=1)))
    run_to_end(launcher, a_job(other, a_run(model_folder, 2, seed=2)))
    assert rows(one, layout.METRICS) != rows(other, layout.METRICS)
    before = (one / layout.RUN).read_bytes(), (one / layout.METRICS).read_bytes()
    assert run_to_end(launcher, a_job(one, a_run(model_folder, 2, seed=1))).state is JobState.DONE
    assert before == ((one / layout.RUN).read_bytes(), (one / layout.METRICS).read_bytes())


def test_a_run_that_fails_says_why_in_one_line(tmp_path, launcher, model_folder):
    run = a_run(model_folder, 2)
    run = RunSpec.model_validate({**run.model_dump(), "model": {"path": str(tmp_path / "nowhere")}})
    status = run_to_end(launcher, a_job(tmp_path / "run", run))
    assert (status.state, status.exit_code) == (JobState.FAILED, 2)
    assert "no model at" in status.reason
    assert RunStore(tmp_path / "run").status().state is JobState.FAILED
    log = (tmp_path / "run" / layout.STDOUT).read_text()
    assert "Traceback" in log
    assert log.splitlines()[-1] == status.reason


def test_a_cancelled_run_checkpoints_and_is_reaped(tmp_path, launcher, model_folder):
    folder = tmp_path / "run"
    handle = launcher.submit(a_job(folder, a_run(model_folder, 5000)))
    wait_for(lambda: RunStore(folder).last_step() is not None)
    launcher.cancel(handle)
    assert launcher._children[handle].process.returncode == 0
    assert launcher.poll(handle).reason == "asked to stop"
    assert RunStore(folder).status().state is JobState.PENDING


def test_a_worker_dies_with_its_launcher(tmp_path, model_folder):
    folder = tmp_path / "run"
    job = a_job(folder, a_run(model_folder, 5000))
    script = f"""
import json, sys, time
from pathlib import Path
from stepladder.core.job import Job, JobKind
from stepladder.launch.local import LocalLauncher
job = Job(kind=JobKind.RUN, id="x", folder=Path({str(folder)!r}), payload=json.loads({json.dumps(dict(job.payload))!r}))
launcher = LocalLauncher()
handle = launcher.submit(job)
print(launcher._children[handle].process.pid, flush=True)
while True:
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        worker = int(parent.stdout.readline())
        wait_for(lambda: RunStore(folder).last_step() is not None)
        parent.kill()
        parent.wait()
    wait_for(lambda: not _alive(worker))
    assert RunStore(folder).status().state is JobState.PENDING


def _alive(pid):
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_cost_is_measured_and_the_scratch_is_gone(tmp_path, launcher, model_folder):
    job = a_job(tmp_path / "cost", a_run(model_folder, 100), JobKind.COST)
    status = run_to_end(launcher, job)
    assert status.state is JobState.DONE, status.reason
    cost = json.loads((tmp_path / "cost" / layout.COST).read_text())
    assert set(cost) == {"step_s", "eval_s", "start_s", "num_parameters", "bytes_per_checkpoint"}
    assert all(value > 0 for value in cost.values())
    assert sorted(p.name for p in (tmp_path / "cost").iterdir()) == [
        layout.COST,
        layout.JOB,
        layout.STDOUT,
    ]


def test_the_timed_run_is_a_valid_short_one():
    run = cost_run(RunSpec())
    assert (run.budget.steps, run.eval.every, run.record.rollouts_every) == (5, 5, 0)
    assert run.optim.warmup_steps < run.budget.steps


def test_the_worker_loads_no_torch_before_its_threads_are_set():
    code = "import sys, stepladder.launch.worker, stepladder.launch.local; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
