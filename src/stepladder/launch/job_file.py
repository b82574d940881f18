"""job.json: how a job crosses from the launcher to the worker. It holds no machine path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stepladder.core.errors import StoreError
from stepladder.core.job import Job, JobKind
from stepladder.spec.explain import explain
from stepladder.spec.run import RunSpec
from stepladder.store import jsonl, layout

ASKED_TO_STOP = "asked to stop"
"""Reason of a run that was asked to end and can go on; its state is pending."""


def write_job(job: Job) -> Path:
    """Write a job into its folder and return the file."""
    path = job.folder / layout.JOB
    value = {
        "kind": job.kind.value,
        "id": job.id,
        "threads": job.threads,
        "payload": dict(job.payload),
    }
    jsonl.write_json(path, value)
    return path


def read_job(path: Path) -> Job:
    """Return the job of a file; its folder is the file's.

    Raises
        StoreError: unreadable, or not a job.
    """
    value = jsonl.read_json(path)
    try:
        return Job(
            kind=JobKind(value["kind"]),
            id=str(value["id"]),
            folder=path.parent,
            payload=value["payload"],
            threads=int(value.get("threads", 1)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError("SL0402", f"is not a job: {error}", str(path)) from error


def run_of(job: Job) -> RunSpec:
    """Return the run of a job: `payload.run`, or the payload itself.

    Raises
        SpecError: a setting is refused.
    """
    tree: Any = job.payload.get("run", job.payload)
    try:
        return RunSpec.model_validate(tree)
    except ValidationError as error:
        raise explain(error, RunSpec, layout.JOB) from error
