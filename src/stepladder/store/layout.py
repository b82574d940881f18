"""Names inside study and run folders, in one place. The folders can be copied and moved whole."""

from __future__ import annotations

from pathlib import Path

STUDY_TOML = "study.toml"
PLAN = "plan.json"
EVENTS = "events.jsonl"
STOP = "STOP"
RUNS = "runs"
REPORT = "report"
STUDY_LOCK = "study.lock"

JOB = "job.json"
RUN = "run.json"
METRICS = "metrics.jsonl"
EVALS = "evals.jsonl"
ROLLOUTS = "rollouts"
CHECKPOINTS = "checkpoints"
STDOUT = "stdout.log"
RUN_LOCK = "run.lock"
COST = "cost.json"
WARMUP = "warmup.json"


def rollout_file(run_folder: Path, step: int) -> Path:
    """Return the file of one step's rollouts."""
    return run_folder / ROLLOUTS / f"step-{step:06d}.jsonl.gz"


def rollout_step(path: Path) -> int | None:
    """Return the step that a rollout file is of; None for a stranger's file."""
    digits = path.name.removeprefix("step-").removesuffix(".jsonl.gz")
    return int(digits) if digits.isdecimal() else None


def stop_files(run_folder: Path) -> tuple[Path, ...]:
    """Return the files whose presence asks a run to end: its own, and its study's."""
    own = (run_folder / STOP,)
    return (*own, run_folder.parent.parent / STOP) if run_folder.parent.name == RUNS else own
