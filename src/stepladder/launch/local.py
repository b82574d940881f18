"""LocalLauncher: jobs as child processes of this one, each the leader of its own process group.

A worker dies with its launcher. What a job came to is read back from its folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepladder.core.errors import EnvironmentProblem, LabError
from stepladder.core.job import Job, JobKind, JobState, JobStatus
from stepladder.launch.job_file import ASKED_TO_STOP, write_job
from stepladder.launch.process import worker_environment
from stepladder.store import layout
from stepladder.store.run_store import RunStore

_TAIL_LINES = 5
_TAIL_BYTES = 8192


@dataclass(slots=True)
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    swept: bool = False
    """Whether what the ended worker left behind was killed; once, the id may be another's later."""


class LocalLauncher:
    """Starts jobs on this machine."""

    def __init__(self, threads: int = 1, *, grace_s: float = 10.0) -> None:
        """Take the threads of each job, and how long a cancelled one may take to checkpoint."""
        self.threads = threads
        self._grace_s = grace_s
        self._children: dict[str, _Child] = {}

    def submit(self, job: Job) -> str:
        """Start a job in its folder and return its handle, which is the job's id.

        Raises
            EnvironmentProblem: a process cannot be started.
        """
        path = write_job(job)
        threads = max(job.threads, self.threads)
        command = [sys.executable, "-m", "stepladder.launch.worker", str(path)]
        command += ["--parent", str(os.getpid()), "--threads", str(threads)]
        if threading.current_thread() is not threading.main_thread():
            command.append("--watch-parent")
        with (job.folder / layout.STDOUT).open("ab") as log:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **worker_environment(threads)},
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentProblem(
                    "SL0303", f"cannot start a process: {error}", job.id
                ) from error
        self._children[job.id] = _Child(job, process)
        return job.id

    def poll(self, handle: str) -> JobStatus:
        """Return where a job stands; its state and reason are those that its folder tells."""
        child = self._children[handle]
        code = child.process.poll()
        if code is None:
            return JobStatus(state=JobState.RUNNING)
        _sweep(child)
        return _outcome(child.job, code)

    def cancel(self, handle: str) -> None:
        """Ask the job to checkpoint and end; kill its whole group when it does not; reap it."""
        child = self._children[handle]
        process = child.process
        if process.poll() is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._grace_s)
        _sweep(child)
        process.wait()

    def close(self) -> None:
        """Cancel every job that still runs."""
        running = [h for h, child in self._children.items() if child.process.poll() is None]
        for handle in running:
            with suppress(ProcessLookupError):
                self._children[handle].process.send_signal(signal.SIGTERM)
        for handle in running:
            self.cancel(handle)


def _sweep(child: _Child) -> None:
    """Kill what is left of a job's process group; its id stays taken as long as a member lives."""
    if child.swept:
        return
    child.swept = True
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)


def _outcome(job: Job, code: int) -> JobStatus:
    if job.kind is not JobKind.RUN:
        state = JobState.DONE if code == 0 else JobState.FAILED
        reason = "" if code == 0 else _crash_reason(job.folder, code)
        return JobStatus(state=state, exit_code=code, reason=reason)
    try:
        status = RunStore(job.folder).status()
    except LabError as error:
        return JobStatus(state=JobState.FAILED, exit_code=code, reason=str(error))
    if code == -signal.SIGTERM or (code == 0 and status.state is JobState.PENDING):
        # The process ended on purpose; the run itself is pending and can go on.
        return JobStatus(state=JobState.STOPPED, exit_code=code, reason=ASKED_TO_STOP)
    if code == 0 or (status.state is JobState.FAILED and status.reason):
        return JobStatus(state=status.state, exit_code=code, reason=status.reason)
    return JobStatus(state=JobState.FAILED, exit_code=code, reason=_crash_reason(job.folder, code))


def _crash_reason(folder: Path, code: int) -> str:
    """Return how a process ended, with the last lines that it wrote."""
    how = f"the worker ended with exit code {code}"
    if code < 0:
        with suppress(ValueError):
            how = f"the worker was killed by {signal.Signals(-code).name}"
    # A worker that ends by itself says in its last line why; one that is killed does not.
    tail = last_lines(folder / layout.STDOUT, 1 if code > 0 else _TAIL_LINES)
    return f"{how}; it wrote last: {tail}" if tail else f"{how}; it wrote nothing"


def last_lines(path: Path, count: int) -> str:
    """Return the last lines of a log, joined by ` | `."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])
