"""Advisory locks on files: one writer a run folder, one process a study, one builder a policy.

The operating system drops a lock when its process dies, so a lock is never stale.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stepladder.core.errors import EnvironmentProblem, StoreError

_RETRY_S = 0.05


@contextmanager
def hold(path: Path, what: str, wait_s: float | None = 0.0) -> Generator[None]:
    """Hold an exclusive lock for the time of the block; `wait_s` None waits for ever.

    Raises
        StoreError: another process still holds it after `wait_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while not _take(handle, shared=False):
            if deadline is not None and time.monotonic() >= deadline:
                raise StoreError(
                    "SL0404",
                    f"another process holds {what}",
                    str(path),
                    "wait for it, or end that process",
                )
            time.sleep(_RETRY_S)
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Tell whether some process holds the lock; a lock file that does not exist is not held."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _take(handle, shared=True)
    finally:
        os.close(handle)


def _take(handle: int, *, shared: bool) -> bool:
    if sys.platform == "win32":
        raise EnvironmentProblem(
            "SL0302", "runs need the file locks of Linux or macOS", fix="use WSL on Windows"
        )
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
