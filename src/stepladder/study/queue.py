"""The queue: runs a plan's cells over slots, resumes where it was, never repeats a finished cell.

One loop: start what fits, poll, sort out what ended. A cell that fails is tried once more, then
marked failed. Drain (Ctrl-C once, or a STOP file) starts nothing new; stop (Ctrl-C twice) also ends
what runs; either way the same command goes on later. Called by `rehearse`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stepladder.core.job import Job, JobKind, JobState, JobStatus
from stepladder.core.seams import Launcher
from stepladder.store import layout
from stepladder.store.jsonl import write_json
from stepladder.store.run_store import FORMAT_VERSION
from stepladder.study.cell import Cell, Plan
from stepladder.study.collect import cell_folder, collect_cell, is_finished, read_run
from stepladder.study.cost import list_schedule
from stepladder.study.guard import StopRequests, stop_file

MAX_ATTEMPTS = 2
POLL_S = 0.1
ENDED = "ended"


class Progress(Protocol):
    """Where a queue tells of what happens; the CLI draws it, tests collect it."""

    def begin(self, num_jobs: int, num_finished: int, estimated_s: float | None) -> None:
        """Say how much there is to do."""
        ...

    def note(self, text: str) -> None:
        """Say one thing aloud."""
        ...

    def started(self, name: str) -> None:
        """Tell that a job has started."""
        ...

    def ended(self, name: str, state: str, seconds: float, detail: str) -> None:
        """Tell that a job has ended."""
        ...

    def tick(self, running: Sequence[str]) -> None:
        """Take note of what runs; called at every poll."""
        ...


class StudyFolder(Protocol):
    """What the queue needs of `store.study_store.StudyStore`."""

    @property
    def folder(self) -> Path:
        """The study folder."""
        ...

    def event(self, kind: str, **details: Any) -> None:
        """Append one event."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnd:
    """How a queue ended."""

    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Jobs that failed twice, with the last reason."""
    unfinished: int = 0
    """Jobs that a drain or a stop left over."""
    interrupted: str = ""
    """`drain`, `stop`, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What carries jobs out: a launcher, its slots, and the means to stop and to wait."""

    launcher: Launcher
    num_slots: int
    progress: Progress
    requests: StopRequests = field(default_factory=StopRequests)
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


Settle = Callable[[Job, JobStatus], tuple[str, str]]
"""Turns an ended job into its state and a word about it."""


def run_order(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells longest first, so that the slots end together; ties by id."""

    def length(cell: Cell) -> float:
        if cell.estimated_s is not None:
            return cell.estimated_s
        return cell.run.budget.steps * cell.run.batch_size * cell.ratios.get("model", 1.0)

    return sorted(cells, key=lambda cell: (-length(cell), cell.id))


def cell_job(plan: Plan, cell: Cell, folder: Path) -> Job:
    """Return the job of one cell."""
    return Job(
        kind=JobKind.RUN,
        id=cell.id,
        folder=cell_folder(folder, cell),
        payload={
            "run": cell.run.model_dump(mode="json"),
            "provenance": dict(cell.provenance),
            "plugin_folder": plan.facts.get("plugin_folder"),
        },
        threads=plan.spec.launch.threads,
    )


def run_plan(plan: Plan, store: StudyFolder, hands: Hands) -> QueueEnd:
    """Run every cell that is not finished; a STOP file of an earlier day is cleared first."""
    folder = store.folder
    stop_file(folder).unlink(missing_ok=True)
    order = run_order(plan.cells)
    by_id = {cell.id: cell for cell in order}
    todo = [cell for cell in order if not is_finished(folder, cell)]
    estimates = [cell.estimated_s for cell in todo if cell.estimated_s is not None]
    known = len(estimates) == len(todo)
    estimated_s = list_schedule(estimates, hands.num_slots) if known else None
    hands.progress.begin(len(order), len(order) - len(todo), estimated_s)
    jobs = [cell_job(plan, cell, folder) for cell in todo]
    end = run_jobs(jobs, store, hands, lambda job, ended: _settle(by_id[job.id], folder, ended))
    for name, reason in end.failed.items():
        _mark_failed(by_id[name], folder, reason)
    return end


def run_jobs(jobs: Sequence[Job], store: StudyFolder, hands: Hands, settle: Settle) -> QueueEnd:
    """Run jobs over the slots, the first first; each is tried twice at most."""
    queue = _Queue(jobs, store, hands, settle)
    try:
        while queue.goes_on():
            queue.start_what_fits()
            queue.sort_out_what_ended()
            hands.progress.tick(queue.running_names())
            if queue.running:
                hands.wait(POLL_S)
    finally:
        left = queue.give_up()
    interrupted = ""
    if left:
        interrupted = "stop" if hands.requests.count >= 2 else "drain"
        store.event(interrupted, unfinished=left)
    return QueueEnd(failed=queue.failed, unfinished=left, interrupted=interrupted)


@dataclass(frozen=True, slots=True)
class _Running:
    job: Job
    attempt: int
    since: float


class _Queue:
    """The waiting, running and failed jobs of one `run_jobs`."""

    def __init__(
        self, jobs: Sequence[Job], store: StudyFolder, hands: Hands, settle: Settle
    ) -> None:
        self.waiting = deque((job, 1) for job in jobs)
        self.running: dict[str, _Running] = {}
        self.failed: dict[str, str] = {}
        self._store = store
        self._hands = hands
        self._settle = settle

    def goes_on(self) -> bool:
        """Return whether the loop has more to do."""
        if self._hands.requests.count >= 2:
            return False
        return bool(self.running) or (bool(self.waiting) and not self._draining())

    def start_what_fits(self) -> None:
        """Launch waiting jobs into free slots."""
        while self.waiting and len(self.running) < self._hands.num_slots and not self._draining():
            job, attempt = self.waiting.popleft()
            job.folder.mkdir(parents=True, exist_ok=True)
            self._store.event("started", job=job.id, attempt=attempt)
            self._hands.progress.started(job.id)
            handle = self._hands.launcher.submit(job)
            self.running[handle] = _Running(job, attempt, self._hands.clock())

    def sort_out_what_ended(self) -> None:
        """Take ended jobs out of their slots; what is not finished goes back to the front."""
        for handle, entry in list(self.running.items()):
            status = self._hands.launcher.poll(handle)
            if status.exit_code is None and status.state in (JobState.PENDING, JobState.RUNNING):
                continue
            del self.running[handle]
            state, detail = self._settle(entry.job, status)
            seconds = self._hands.clock() - entry.since
            self._store.event(
                ENDED, job=entry.job.id, attempt=entry.attempt, state=state, detail=detail
            )
            if state in (JobState.DONE.value, JobState.STOPPED.value):
                self._hands.progress.ended(entry.job.id, state, seconds, detail)
            elif entry.attempt < MAX_ATTEMPTS:
                if not self._draining():
                    self._hands.progress.note(f"{entry.job.id} is tried once more: {detail}")
                self.waiting.appendleft((entry.job, entry.attempt + 1))
            else:
                self._hands.progress.ended(entry.job.id, state, seconds, detail)
                self.failed[entry.job.id] = detail

    def running_names(self) -> list[str]:
        """Return the ids of the jobs in the slots."""
        return [entry.job.id for entry in self.running.values()]

    def give_up(self) -> int:
        """End what still runs and return how many jobs are left over."""
        for handle in self.running:
            self._hands.launcher.cancel(handle)
        return len(self.running) + len(self.waiting)

    def _draining(self) -> bool:
        return self._hands.requests.count > 0 or stop_file(self._store.folder).exists()


def _settle(cell: Cell, folder: Path, status: JobStatus) -> tuple[str, str]:
    """Return a cell's state by its record, which outlives the process, and a word about it."""
    if is_finished(folder, cell):
        record = read_run(cell_folder(folder, cell))
        if record["state"] == JobState.STOPPED.value:
            return JobState.STOPPED.value, str(record.get("reason") or "")
        return JobState.DONE.value, _score_text(cell, folder)
    if status.state is JobState.PENDING:
        return JobState.PENDING.value, status.reason or "interrupted"
    return JobState.FAILED.value, status.reason or f"exit code {status.exit_code}"


def _score_text(cell: Cell, folder: Path) -> str:
    result = collect_cell(cell, folder)
    if result.base_score is None or result.final_score is None:
        return ""
    return f"pass@1 {result.base_score:.3f} -> {result.final_score:.3f}"


def _mark_failed(cell: Cell, folder: Path, reason: str) -> None:
    """Write the state that a killed worker could not write; the next try resumes all the same."""
    path = cell_folder(folder, cell) / layout.RUN
    told = {"state": JobState.FAILED.value, "reason": reason, "run_id": cell.run.run_id}
    write_json(path, {"format_version": FORMAT_VERSION, **read_run(path.parent), **told})
