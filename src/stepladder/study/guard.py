"""Guards of a study: a STOP file that drains, and Ctrl-C that is counted instead of raised.

Used by `queue` and by every command that starts workers.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from stepladder.store import layout


@dataclass(slots=True)
class StopRequests:
    """Counts requests to stop: one drains, two end what runs."""

    count: int = 0

    @contextmanager
    def listening(self) -> Generator[None]:
        """Count Ctrl-C in this block instead of raising; SIGTERM counts as two."""

        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            self.count += 1

        def terminate(_signal: int, _frame: FrameType | None) -> None:
            self.count += 2

        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
            signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def stop_file(folder: Path) -> Path:
    """Return the file whose presence drains the queue of a study folder."""
    return folder / layout.STOP
