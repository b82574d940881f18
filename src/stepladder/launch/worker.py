"""The worker: one job in one process. `python -m stepladder.launch.worker JOB.json`.

The only module that imports the engine, inside functions: threads and allocator are set before
torch is loaded. Its last line on stderr says in one line what went wrong.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepladder.core.control import CONTINUE, Action
from stepladder.core.errors import LabError, boundary
from stepladder.core.job import Job, JobKind, JobState
from stepladder.core.metrics import StepMetrics
from stepladder.core.prompt import Split
from stepladder.core.seams import Task
from stepladder.launch.base_policy import ensure_base_policy
from stepladder.launch.job_file import ASKED_TO_STOP, read_job, run_of
from stepladder.launch.observe import DrainSignal, RunObserver
from stepladder.launch.process import die_with_parent, pin_to, thread_environment
from stepladder.monitors.validation import ValidationGate
from stepladder.rewards.registry import build_reward
from stepladder.spec.base import with_leaf
from stepladder.spec.conventions import conventions
from stepladder.spec.ladder import LadderSize, WarmupRecipe
from stepladder.spec.run import RunSpec
from stepladder.store import jsonl, layout
from stepladder.store.provenance import provenance
from stepladder.store.run_store import FINAL, RunStore
from stepladder.tasks.registry import build_task

NUM_TIMED_STEPS = 4
LOCK_WAIT_S = 15.0
"""A predecessor whose launcher was killed dies within a second; this is ample."""
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the job of a file; return the exit code."""
    parser = argparse.ArgumentParser(prog="stepladder.launch.worker")
    parser.add_argument("job", type=Path)
    parser.add_argument("--parent", type=int, help="process to end with")
    parser.add_argument("--watch-parent", action="store_true", help="look instead of being told")
    parser.add_argument("--threads", type=int, help="instead of the job's")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        die_with_parent(options.parent, watch=options.watch_parent)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    drain = DrainSignal()
    drain.listen()
    return run_job(options.job, drain, options.threads)


def run_job(path: Path, drain: DrainSignal, threads: int | None = None) -> int:
    """Do the job of a file and return the exit code; a fault is told, not raised."""
    try:
        job = read_job(path)
        os.environ.update(thread_environment(threads or job.threads))
        core = job.payload.get("core")
        pin_to([] if core is None else [int(core)])
        if job.kind is JobKind.RUN:
            _run(job, drain)
        elif job.kind is JobKind.WARMUP:
            _warm_up(job)
        else:
            _measure_cost(job)
    except LabError as error:
        return _tell(path.parent, error, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001  (the top of this process)
        return _tell(path.parent, error, f"{type(error).__name__}: {error}", 1)
    return 0


def _tell(folder: Path, error: Exception, text: str, code: int) -> int:
    """Write the traceback and then one line; note the failure in the run that has begun."""
    line = " ".join(text.split())
    sys.stdout.write("".join(traceback.format_exception(error)))
    sys.stdout.flush()
    sys.stderr.write(f"{line}\n")
    with suppress(LabError):
        store = RunStore(folder)
        # A folder that another process holds is that process's to write.
        with store.lock():
            if store.header().get("state") == JobState.RUNNING.value:
                store.end(JobState.FAILED, line)
    return code


def _plugin_folder(job: Job) -> Path | None:
    """Return the folder that relative paths and dotted-path plug-ins are looked up from."""
    folder = job.payload.get("plugin_folder")
    return None if folder is None else Path(folder)


def _run(job: Job, drain: DrainSignal) -> None:
    """Train one policy, or go on with it; a finished run is left as it is."""
    run = run_of(job)
    store = RunStore(job.folder, run.record)
    with store.lock(LOCK_WAIT_S):
        header = store.header()
        same = header.get("run_id") == run.run_id
        if same and JobState(header["state"]) in FINAL:
            _log.info("the run is %s already", header["state"])
            return
        reset_optimizer = bool(job.payload.get("reset_optimizer"))
        marks = list(header.get("optimizer_resets", [])) if same else []
        if reset_optimizer and same:
            marks.append(store.last_step() or 0)
        origin = job.payload.get("provenance", {})
        store.begin({**_run_json(run, origin), "optimizer_resets": marks})
        _execute(run, job, store, drain, reset_optimizer=reset_optimizer)


def _execute(
    run: RunSpec, job: Job, store: RunStore, drain: DrainSignal, *, reset_optimizer: bool
) -> None:
    folder = _plugin_folder(job)
    task = build_task(run.task, folder=folder)
    reward = build_reward(run.reward, task, folder=folder)
    policy = _policy(run, task, folder)
    from stepladder.engine.run import execute_run

    observer = RunObserver(
        ValidationGate(run.validation), store, drain, layout.stop_files(job.folder)
    )
    end = execute_run(
        run,
        model_folder=policy,
        task=task,
        reward=reward,
        recorder=store,
        observer=observer.on_step,
        folder=job.folder,
        reset_optimizer=reset_optimizer,
    )
    facts = {"num_parameters": end.num_parameters, "final_step": end.final_step}
    if observer.drained and end.state is JobState.STOPPED:
        store.end(JobState.PENDING, ASKED_TO_STOP, **facts)
    else:
        store.end(end.state, end.reason, **facts)


def _run_json(run: RunSpec, origin: Mapping[str, str]) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": run.name,
        "settings": run.leaves(),
        "provenance": dict(origin),
        "seeds": {"run": run.seed},
        "conventions": conventions(run),
        **provenance(),
    }


def _policy(run: RunSpec, task: Task, folder: Path | None) -> Path:
    """Return the base policy's folder, warmed up here when the cache does not hold it."""

    def build(size: LadderSize, recipe: WarmupRecipe, target: Path) -> None:
        _build(size, recipe, target, task)

    return ensure_base_policy(run.model.path, run.task, build, folder)


def _build(size: LadderSize, recipe: WarmupRecipe, target: Path, task: Task) -> dict[str, Any]:
    """Train a ladder size on the task's own solutions."""
    from stepladder.engine.warmup import build_base_policy, demonstrations

    with boundary(f"task {task.name}"):
        solved = [
            (prompt.text, task.oracle(prompt), prompt.gold) for prompt in task.prompts(Split.TRAIN)
        ]
    _log.info("warming up %s on %d demonstrations", size.name, len(solved))
    pairs = demonstrations(solved, recipe, recipe.seed)
    return build_base_policy(size, pairs, recipe, target)


def _warm_up(job: Job) -> None:
    """Make sure that a base policy is in the cache; say in `warmup.json` what was done."""
    started = time.perf_counter()
    folder = _plugin_folder(job)
    task_mapping = job.payload["task"]
    task = build_task(task_mapping, folder=folder)
    report: dict[str, Any] = {"built": False}

    def build(size: LadderSize, recipe: WarmupRecipe, target: Path) -> None:
        report.update(_build(size, recipe, target, task), built=True)

    policy = ensure_base_policy(str(job.payload["size"]), task_mapping, build, folder)
    report |= {"policy": policy.name, "wall_s": time.perf_counter() - started}
    jsonl.write_json(job.folder / layout.WARMUP, report)


def _measure_cost(job: Job) -> None:
    """Take a few steps of a run in a scratch folder and write what one costs."""
    started = _process_start()
    run = cost_run(run_of(job))
    folder = _plugin_folder(job)
    task = build_task(run.task, folder=folder)
    reward = build_reward(run.reward, task, folder=folder)
    before_build = time.time()
    policy = _policy(run, task, folder)
    build_s = time.time() - before_build
    scratch = job.folder / "measured"
    shutil.rmtree(scratch, ignore_errors=True)
    store = RunStore(scratch, run.record)
    from stepladder.engine.run import execute_run

    ready: list[float] = []

    def observer(_metrics: StepMetrics) -> Action:
        ready.append(time.time())
        return CONTINUE

    try:
        end = execute_run(
            run,
            model_folder=policy,
            task=task,
            reward=reward,
            recorder=store,
            observer=observer,
            folder=scratch,
        )
        steps = [m for m in store.steps() if m.step > 0]
        eval_s = [row["sys"]["time_eval_s"] for row in jsonl.read_rows(scratch / layout.EVALS).rows]
        checkpoints = scratch / layout.CHECKPOINTS
        cost = {
            "step_s": statistics.median(m.system["time_step_s"] for m in steps[-NUM_TIMED_STEPS:]),
            "eval_s": eval_s[-1],
            "start_s": max(0.0, ready[0] - started - build_s - eval_s[0]),
            "num_parameters": end.num_parameters,
            "bytes_per_checkpoint": sum(
                path.stat().st_size for path in checkpoints.rglob("*") if path.is_file()
            ),
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    jsonl.write_json(job.folder / layout.COST, cost)


def cost_run(run: RunSpec) -> RunSpec:
    """Return the short run that is timed: one warm step, the timed ones, one checkpoint."""
    steps = 1 + NUM_TIMED_STEPS
    tree = run.model_dump(mode="json")
    for path, value in (
        ("budget.steps", steps),
        ("optim.warmup_steps", min(run.optim.warmup_steps, steps - 1)),
        ("eval.every", steps),
        ("checkpoint.every", steps),
        ("checkpoint.keep", 1),
        ("record.rollouts_every", 0),
    ):
        tree = with_leaf(tree, path, value)
    return RunSpec.model_validate(tree)


def _process_start() -> float:
    """Return the time at which this process began, its imports included."""
    import psutil

    return psutil.Process().create_time()


if __name__ == "__main__":
    sys.exit(main())
