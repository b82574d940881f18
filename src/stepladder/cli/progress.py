"""Progress on stderr: one line a cell when piped, a live line beside it on a terminal.

Both meet `study.queue.Progress`. A study's results never come this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepladder.cli.output import clock, is_live, note

HEARTBEAT_S = 60.0
"""A line a minute when piped and nothing else happens."""
_SETUP = ("warmup-", "cost-")


class LineProgress:
    """Writes a line when a job ends, and a sign of life each minute."""

    def __init__(
        self,
        write: Callable[[str], None] = note,
        now: Callable[[], float] = time.monotonic,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._write = write
        self._now = now
        self._heartbeat_s = heartbeat_s
        self._total = 0
        self._done = 0
        self._todo = 0
        self._ended = 0
        self._estimated_s: float | None = None
        self._since = self._last = now()

    def begin(self, num_jobs: int, num_finished: int, estimated_s: float | None) -> None:
        """Say how much there is to do."""
        self._total, self._done = num_jobs, num_finished
        self._todo, self._ended = num_jobs - num_finished, 0
        self._estimated_s = estimated_s
        self._since = self._last = self._now()
        kept = f", {num_finished} finished already" if num_finished else ""
        about = f", about {clock(estimated_s)}" if estimated_s is not None and self._todo else ""
        self.note(f"{num_jobs} runs{kept}{about}")

    def note(self, text: str) -> None:
        """Say one thing aloud."""
        self._last = self._now()
        self._write(text)

    def started(self, name: str) -> None:
        """Take note that a job has started."""

    def ended(self, name: str, state: str, seconds: float, detail: str) -> None:
        """Write one line for the job."""
        told = f"{name}  {state}  {clock(seconds)}"
        if detail:
            told += f"  {detail}"
        if name.startswith(_SETUP):
            self.note(f"  {told}")
            return
        self._done += 1
        self._ended += 1
        left = self.eta()
        width = len(str(self._total))
        eta = f"  eta {clock(left)}" if left else ""
        self.note(f"[{self._done:>{width}}/{self._total}] {told}{eta}")

    def tick(self, running: Sequence[str]) -> None:
        """Write a sign of life when nothing was said for a minute."""
        if running and self._now() - self._last >= self._heartbeat_s:
            self.note(self.line(running))

    def line(self, running: Sequence[str]) -> str:
        """Return what runs, in one line."""
        left = self.eta()
        eta = f", eta {clock(left)}" if left else ""
        done = f"{self._done}/{self._total} done, " if self._total else ""
        return f"{done}running {', '.join(running)}{eta}"

    def eta(self) -> float | None:
        """Return the seconds left: by the plan's estimate, else by the mean so far."""
        if self._ended >= self._todo:
            return None
        elapsed = self._now() - self._since
        if self._estimated_s is not None and self._estimated_s > elapsed:
            return self._estimated_s - elapsed
        if not self._ended:
            return None
        return elapsed / self._ended * (self._todo - self._ended)

    def close(self) -> None:
        """Let go of the terminal."""


class LiveProgress(LineProgress):
    """The same lines, with a line below that is redrawn."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting")
        self._status.start()
        super().__init__(write=lambda text: self._console.print(text, markup=False))

    def tick(self, running: Sequence[str]) -> None:
        """Redraw the line."""
        self._status.update(self.line(running) if running else "waiting")

    def close(self) -> None:
        """Take the line away."""
        self._status.stop()


class TrainProgress(LineProgress):
    """Follows one run: a line at each evaluation, and every so many steps."""

    EVERY = 10

    def __init__(self, folder: Path, num_steps: int, write: Callable[[str], None] = note) -> None:
        super().__init__(write=write)
        self._folder = folder
        self._num_steps = num_steps
        self._seen = {"metrics.jsonl": -1, "evals.jsonl": -1}

    def begin(self, num_jobs: int, num_finished: int, estimated_s: float | None) -> None:
        """Say nothing: there is one run."""

    def started(self, name: str) -> None:
        """Say that the worker starts."""
        if not name.startswith(_SETUP):
            self.note(f"training in {self._folder}")

    def ended(self, name: str, state: str, seconds: float, detail: str) -> None:
        """Say what is left to say, and how the run ended."""
        self._follow()
        super().ended(name, state, seconds, detail) if name.startswith(_SETUP) else None

    def tick(self, running: Sequence[str]) -> None:  # noqa: ARG002  (the protocol's signature)
        """Tell of new rows."""
        self._follow()

    def _follow(self) -> None:
        for row in self._fresh("metrics.jsonl"):
            if row["step"] % self.EVERY == 0 or row["step"] == self._num_steps:
                self.note(step_line(row, self._num_steps))
        for row in self._fresh("evals.jsonl"):
            score = row["m"].get("eval/pass@1")
            told = "no score" if score is None else f"pass@1 {score:.3f}"
            self.note(f"step {row['step']:>4}  eval {told}")

    def _fresh(self, name: str) -> list[Mapping[str, Any]]:
        from stepladder.store.jsonl import read_rows

        rows = [
            row
            for row in read_rows(self._folder / name).rows
            if isinstance(row.get("step"), int) and row["step"] > self._seen[name]
        ]
        if rows:
            self._seen[name] = max(row["step"] for row in rows)
        return list(rows)


def step_line(row: Mapping[str, Any], num_steps: int) -> str:
    """Return one training step for people."""
    shown = (
        ("reward_mean", "reward", ".3f"),
        ("kl_ref", "kl", ".4f"),
        ("entropy", "entropy", ".3f"),
        ("grad_norm", "grad", ".2f"),
        ("length_mean", "length", ".1f"),
    )
    values = [
        f"{label} {row['m'][name]:{digits}}" for name, label, digits in shown if name in row["m"]
    ]
    if row.get("nan"):
        values.append(f"not finite: {', '.join(row['nan'])}")
    seconds = row.get("sys", {}).get("time_step_s")
    if seconds is not None:
        values.append(f"{seconds:.2f} s/step")
    return f"step {row['step']:>4}/{num_steps}  {'  '.join(values)}"


def make_progress() -> LineProgress:
    """Return the progress that suits stderr."""
    return LiveProgress() if is_live() else LineProgress()
