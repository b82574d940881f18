"""What the loop asks after every step: the validation gate's word, then whether to drain.

The gate sees every step of the run, also those of earlier sessions, so that a resumed run stops
where an uninterrupted one would have.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from stepladder.core.control import CONTINUE, Action, ActionKind, stop
from stepladder.core.metrics import StepMetrics
from stepladder.launch.job_file import ASKED_TO_STOP
from stepladder.monitors.validation import ValidationGate
from stepladder.store.run_store import RunStore


class DrainSignal:
    """Set by SIGTERM: end after the step that runs."""

    def __init__(self) -> None:
        self.is_set = False

    def listen(self) -> None:
        """Take over SIGTERM; only the main thread may."""
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True


class RunObserver:
    """The worker's observer of one session."""

    def __init__(
        self,
        gate: ValidationGate,
        store: RunStore,
        drain: DrainSignal,
        stop_files: Sequence[Path],
    ) -> None:
        self._gate = gate
        self._store = store
        self._drain = drain
        self._stop_files = tuple(stop_files)
        self._primed = False
        self.drained = False
        """Whether the run was asked to end and can go on."""

    def on_step(self, metrics: StepMetrics) -> Action:
        """Answer one step."""
        if not self._primed:
            self._primed = True
            for earlier in self._store.steps():
                if earlier.step < metrics.step:
                    answer = self._gate.on_step(earlier)
                    if answer.kind is ActionKind.STOP:
                        return answer
        answer = self._gate.on_step(metrics)
        if answer.kind is ActionKind.STOP:
            return answer
        if self._drain.is_set or any(path.exists() for path in self._stop_files):
            self.drained = True
            return stop(ASKED_TO_STOP, resumable=True)
        return CONTINUE
