"""Jobs: what a launcher starts. A job is a JSON file that the worker reads; nothing else crosses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class JobKind(StrEnum):
    """The jobs a worker can do."""

    RUN = "run"
    WARMUP = "warmup"
    COST = "cost"


class JobState(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """Ended early on purpose, with a reason: a failed validation or a stop rule."""
    FAILED = "failed"
    """The process died or raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One unit of work in one process."""

    kind: JobKind
    id: str
    folder: Path
    """Where the job writes; `job.json` lies there."""
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON values: the RunSpec for RUN and COST, ladder size and task for WARMUP."""
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What a launcher knows of a submitted job."""

    state: JobState
    exit_code: int | None = None
    reason: str = ""
