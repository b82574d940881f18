"""What made a run: versions, code and host. No secrets, no paths, no names of people or machines."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pydantic")


def provenance() -> dict[str, Any]:
    """Return the versions, the git state of this package and the host, as JSON values."""
    return {
        "package_version": package_version(),
        "git": git_state(Path(__file__).parent),
        "python": platform.python_version(),
        "libraries": library_versions(),
        "host": host(),
    }


def package_version() -> str:
    """Return the installed version of stepladder."""
    return _version("stepladder") or "unknown"


def library_versions() -> dict[str, str | None]:
    """Return library -> version; None when it is not installed. Imports none of them."""
    return {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


CGROUP = Path("/sys/fs/cgroup")


def num_cores(cgroup: Path = CGROUP) -> int:
    """Return how many cores this process may use: affinity, cut by the cgroup's quota."""
    available = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available else (os.cpu_count() or 1)
    limit = cgroup / "cpu.max"
    quota, _, period = (limit.read_text() if limit.is_file() else "").partition(" ")
    if quota.isdigit() and period.strip().isdigit() and int(period) > 0:
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def host() -> dict[str, Any]:
    """Return what of the machine bears on speed and floats."""
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": num_cores(),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and whether tracked files differ; None when git does not track the code.

    An installed package inside somebody's repository is not that repository's code.
    """
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    return None if commit is None else {"commit": commit, "changed": bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            # Reading must not refresh (write) the index of the user's repository.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
