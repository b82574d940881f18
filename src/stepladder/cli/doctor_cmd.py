"""`stepladder doctor`: what this machine can do, and the one command that mends what it cannot.

Reads package metadata instead of importing, so that it answers in a moment and without torch.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import click

from stepladder import __version__
from stepladder.cli.output import echo, print_json, print_table

BLOCKED_EXIT_CODE = 3
LEAST_PYTHON = (3, 11)
LEAST_MEMORY_BYTES = 2 * 1024**3
"""Two ladder cells at once hold about 1 GB; the rest is for the system."""
LEAST_DISK_BYTES = 1024**3
"""A rehearsal's folder takes about 100 MB; checkpoints of larger models take more."""
TRAIN_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
CGROUP = Path("/sys/fs/cgroup")
BYTES_PER_GIB = 1024**3


class State(StrEnum):
    """How one row stands."""

    OK = "ok"
    OPTIONAL = "optional"
    """Absent, and only needed for a part of the product."""
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row of the doctor's table."""

    name: str
    state: State
    found: str
    fix: str = ""
    """The one command (or step) that mends it; empty when nothing is wrong."""


def check_machine(runs_folder: Path, cache: Path) -> list[Check]:
    """Return every row, in the order shown."""
    return [
        check_python(),
        Check(name="stepladder", state=State.OK, found=__version__),
        check_cores(),
        check_memory(),
        check_disk(runs_folder),
        check_writable("runs folder", runs_folder, f"mkdir -p {runs_folder}"),
        check_writable("cache folder", cache, "export STEPLADDER_CACHE=/a/folder/you/may/write"),
        *check_train_packages(),
        check_gpu(),
        check_program("chromium", "pictures of reports", "apt-get install chromium"),
        check_program("bwrap", "the code sandbox", "apt-get install bubblewrap"),
    ]


def check_python() -> Check:
    """Judge the running interpreter."""
    found = f"{platform.python_version()} ({platform.python_implementation()})"
    if sys.version_info[:2] >= LEAST_PYTHON:
        return Check(name="Python", state=State.OK, found=found)
    return Check(
        name="Python",
        state=State.BLOCKED,
        found=found,
        fix="install Python 3.11 or newer, then: make clean && make rehearse PYTHON=python3.11",
    )


def check_cores() -> Check:
    """Tell how many cells can run at once."""
    from stepladder.store.provenance import num_cores

    cores, seen = num_cores(), os.cpu_count() or 1
    plural = "core" if cores == 1 else "cores"
    found = f"{cores} {plural} usable" + (f" of {seen}" if seen != cores else "")
    return Check(name="cores", state=State.OK, found=found)


def available_memory(cgroup: Path = CGROUP) -> int:
    """Return the bytes that can still be taken, cut by the cgroup's limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    limit, used = _read(cgroup / "memory.max"), _read(cgroup / "memory.current")
    if limit.isdigit() and used.isdigit():
        available = min(available, max(0, int(limit) - int(used)))
    return available


def check_memory() -> Check:
    """Judge the memory that is left."""
    available = available_memory()
    found = f"{available / BYTES_PER_GIB:.1f} GiB available"
    if available >= LEAST_MEMORY_BYTES:
        return Check(name="memory", state=State.OK, found=found)
    fix = "end other programs, or run fewer cells at once: --set launch.slots=1"
    return Check(name="memory", state=State.BLOCKED, found=found, fix=fix)


def check_disk(folder: Path) -> Check:
    """Judge the space where runs are written."""
    place = _nearest_existing(folder)
    free = shutil.disk_usage(place).free
    found = f"{free / BYTES_PER_GIB:.1f} GiB free at {place}"
    if free >= LEAST_DISK_BYTES:
        return Check(name="disk", state=State.OK, found=found)
    fix = "free some space, or write elsewhere: --out /a/larger/disk"
    return Check(name="disk", state=State.BLOCKED, found=found, fix=fix)


def check_writable(name: str, folder: Path, fix: str) -> Check:
    """Judge whether a folder is, or could be made, writable; nothing is made."""
    place = _nearest_existing(folder)
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Check(name=name, state=State.OK, found=str(folder))
    return Check(name=name, state=State.BLOCKED, found=f"{place} is not writable", fix=fix)


def check_train_packages() -> Iterator[Check]:
    """Judge what training needs, by metadata alone."""
    for package in TRAIN_PACKAGES:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield Check(
                name=package,
                state=State.BLOCKED,
                found="not installed",
                fix="pip install 'stepladder[train]'",
            )
        else:
            yield Check(name=package, state=State.OK, found=version)


def check_gpu() -> Check:
    """Name the accelerators that nvidia-smi lists; none is fine."""
    program = shutil.which("nvidia-smi")
    none = Check(name="GPU", state=State.OK, found="none; the ladder runs on the CPU")
    if program is None:
        return none
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(
            name="GPU",
            state=State.OPTIONAL,
            found=f"nvidia-smi failed: {type(error).__name__}",
            fix="nvidia-smi",
        )
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    return Check(name="GPU", state=State.OK, found="; ".join(lines)) if lines else none


def check_program(program: str, purpose: str, fix: str) -> Check:
    """Look for an optional program on the path."""
    path = shutil.which(program)
    if path is None:
        return Check(
            name=program, state=State.OPTIONAL, found=f"not found; only for {purpose}", fix=fix
        )
    return Check(name=program, state=State.OK, found=path)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(as_json: bool) -> None:
    """Look at this machine; each problem comes with the command that fixes it."""
    from stepladder.store.cache import cache_folder

    checks = check_machine(Path("runs"), cache_folder())
    blocked = [check for check in checks if check.state is State.BLOCKED]
    if as_json:
        rows = [asdict(check) for check in checks]
        print_json({"schema": 1, "blocked": bool(blocked), "checks": rows})
    else:
        rows = [(check.name, check.state.value, check.found, check.fix) for check in checks]
        print_table("stepladder doctor", ("what", "state", "found", "fix"), rows)
        echo(f"blocked by: {', '.join(c.name for c in blocked)}" if blocked else "ready to train")
    if blocked:
        raise SystemExit(BLOCKED_EXIT_CODE)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _nearest_existing(folder: Path) -> Path:
    place = folder.resolve()
    while not place.exists() and place != place.parent:
        place = place.parent
    return place
