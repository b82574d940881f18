"""What a worker process needs from its system: thread settings, its core, and dying with its parent.

Imports nothing that is slow; called before torch is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_WATCH_S = 0.5

# glibc gives memory back after every step and asks for it again on the next: keeping it is 6 to 12 %
# faster and halves system time (reference/performance.md). Read by glibc when a process starts.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(16 * 2**30),
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that hold every numeric library to `threads` threads."""
    names = (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    )
    return {**dict.fromkeys(names, str(threads)), "TOKENIZERS_PARALLELISM": "false"}


def worker_environment(threads: int) -> dict[str, str]:
    """Return what is added to a worker's environment; what the user set for the allocator stays."""
    own = {name: value for name, value in ALLOCATOR.items() if name not in os.environ}
    return {**own, **thread_environment(threads), "PYTHONUNBUFFERED": "1"}


def pin_to(cores: Sequence[int]) -> None:
    """Keep this process on some cores; a system that cannot, or lacks the core, is left alone."""
    if sys.platform != "linux" or not cores:
        return
    allowed = os.sched_getaffinity(0) & set(cores)
    if allowed:
        os.sched_setaffinity(0, allowed)


def die_with_parent(parent: int, *, watch: bool) -> None:
    """End this process, by SIGKILL, when process `parent` ends; at once when it has ended already.

    Linux signals the end of the parent's *thread* that forked, so a launcher that submits from a
    thread other than its main one asks for `watch`: a thread here that looks twice a second.
    """
    if watch or sys.platform != "linux" or not _signal_on_parent_death():
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="parent-watch").start()
    # The parent may have died before the signal was asked for.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _signal_on_parent_death() -> bool:
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os.kill(os.getpid(), signal.SIGKILL)
