"""Verbs that look at running work: `status`, `stop`. They read JSON and import nothing heavy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from stepladder.cli.output import OK, clock, echo, note, print_json, print_table
from stepladder.core.errors import StoreError
from stepladder.store import layout, lock
from stepladder.store.jsonl import read_json, write_bytes

TAIL_BYTES = 65_536
"""Enough for the last row of a metrics file."""


@click.command(epilog="\b\nExamples:\n  stepladder status\n  stepladder status runs/first --json")
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(study: Path | None, as_json: bool) -> int:
    """Show how far a study is: its runs, their states and steps.

    STUDY is a study folder; without it the rehearsal in runs/rehearsal.
    """
    from stepladder.cli.study_cmds import find_study

    found = study_status(find_study(study))
    if as_json:
        print_json(found)
        return OK
    rows = [
        [
            run["cell"],
            run["state"],
            f"{run['step'] or 0}/{run['steps']}",
            "" if run["score"] is None else f"{run['score']:.3f}",
            run["reason"],
        ]
        for run in found["runs"]
    ]
    counts = ", ".join(f"{count} {state}" for state, count in sorted(found["counts"].items()))
    live = "running" if found["running"] else "not running"
    print_table(f"{found['study']}: {live}; {counts}", ("run", "state", "step", "pass@1", ""), rows)
    if found["left_s"]:
        echo(f"about {clock(found['left_s'])} of work left in all slots together")
    return OK


@click.command(epilog="\b\nExamples:\n  stepladder stop\n  stepladder stop runs/first")
@click.argument("study", type=click.Path(path_type=Path), required=False)
def stop(study: Path | None) -> int:
    """Ask a running study to end: its runs save their state and no new one starts.

    The command that started the study goes on with it later.
    """
    from stepladder.cli.study_cmds import find_study

    folder = find_study(study)
    if not folder.is_dir():
        raise StoreError("SL0217", "is not a folder", str(folder), "name a study folder")
    names = (layout.STUDY_LOCK, layout.RUN_LOCK)
    if not any(lock.is_held(folder / name) for name in names):
        note(f"nothing runs in {folder}")
        return OK
    write_bytes(folder / layout.STOP, b"")
    echo(f"asked {folder} to stop; it goes on with the command that started it")
    return OK


def study_status(folder: Path) -> dict[str, Any]:
    """Return what `status` shows of a study folder, or of a single run's.

    Raises
        StoreError: neither lies there.
    """
    if (folder / layout.PLAN).is_file():
        plan = read_json(folder / layout.PLAN)
        runs = [_run_status(folder / layout.RUNS / c["id"], c) for c in plan["cells"]]
        name = str(plan["spec"]["name"])
    elif (folder / layout.RUN).is_file():
        header = read_json(folder / layout.RUN)
        steps = header.get("settings", {}).get("budget.steps")
        runs = [_run_status(folder, {"id": folder.name, "run": {"budget": {"steps": steps}}})]
        name = folder.name
    else:
        raise StoreError(
            "SL0217",
            "holds no plan yet" if folder.is_dir() else "is not there",
            str(folder),
            "begin with: stepladder rehearse",
        )
    left = [_left(run) for run in runs]
    return {
        "schema": 1,
        "study": name,
        "folder": str(folder),
        "running": any(
            lock.is_held(folder / name) for name in (layout.STUDY_LOCK, layout.RUN_LOCK)
        ),
        "counts": dict(Counter(run["state"] for run in runs)),
        "left_s": None if None in left else round(sum(value or 0.0 for value in left), 1),
        "runs": runs,
    }


def _run_status(folder: Path, cell: dict[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = {}
    if (folder / layout.RUN).is_file():
        header = read_json(folder / layout.RUN)
    state = str(header.get("state", "pending"))
    if state == "running" and not lock.is_held(folder / layout.RUN_LOCK):
        state = "pending"
    scored = _last_row(folder / layout.EVALS)
    return {
        "cell": cell["id"],
        "state": state,
        "reason": str(header.get("reason") or ""),
        "step": _last_row(folder / layout.METRICS).get("step"),
        "steps": cell["run"]["budget"]["steps"],
        "score": scored.get("m", {}).get("eval/pass@1"),
        "estimated_s": cell.get("estimated_s"),
    }


def _left(run: dict[str, Any]) -> float | None:
    if run["state"] in ("done", "stopped", "failed"):
        return 0.0
    if run["estimated_s"] is None:
        return None
    return run["estimated_s"] * (1 - (run["step"] or 0) / run["steps"])


def _last_row(path: Path) -> dict[str, Any]:
    """Return the last whole row of a line file, reading only its end."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = stream.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            return row
    return {}
