"""Collect: run folders become CellResults. Reads only; a cell without a folder is pending.

It reads the files' documented format (run.json, evals.jsonl, metrics.jsonl), so a study copied to
a laptop is analysed there without the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from stepladder.core.errors import StoreError
from stepladder.core.finding import Finding
from stepladder.core.job import JobState
from stepladder.core.result import CellResult, Trajectory
from stepladder.store import layout
from stepladder.store.jsonl import read_json, read_rows
from stepladder.study.cell import Cell, Plan

SCORE = "eval/pass@1"
SERIES: tuple[str, ...] = (
    "reward_mean",
    "kl_ref",
    "entropy",
    "grad_norm",
    "length_mean",
    "format_rate",
    "truncated_share",
    "zero_variance_share",
    "clip_fraction",
    "lr",
)
"""Training series that the report draws."""
MAX_POINTS = 200
"""Points kept of a series; more would only weigh down the report."""
FINISHED: frozenset[str] = frozenset({JobState.DONE.value, JobState.STOPPED.value})


def cell_folder(study: Path, cell: Cell) -> Path:
    """Return the run folder of a cell."""
    return study / layout.RUNS / cell.id


def read_run(folder: Path) -> dict[str, Any]:
    """Return run.json; empty when there is none or it cannot be read."""
    try:
        return read_json(folder / layout.RUN)
    except StoreError:
        return {}


def is_finished(study: Path, cell: Cell) -> bool:
    """Return whether the cell's folder holds this very run, done or stopped for a reason."""
    record = read_run(cell_folder(study, cell))
    return record.get("state") in FINISHED and record.get("run_id") == cell.run.run_id


class HasFolder(Protocol):
    """A study store, or anything that knows the study's folder."""

    @property
    def folder(self) -> Path:
        """The study folder."""
        ...


def collect_cells(plan: Plan, store: HasFolder) -> list[CellResult]:
    """Return one result a cell of the plan, in the plan's order."""
    return [collect_cell(cell, store.folder) for cell in plan.cells]


def collect_cell(cell: Cell, study: Path) -> CellResult:
    """Return what a cell's folder holds."""
    folder = cell_folder(study, cell)
    record = read_run(folder)
    if record.get("run_id") != cell.run.run_id:
        record = {}
    metrics = read_rows(folder / layout.METRICS).rows if record else ()
    evals = read_rows(folder / layout.EVALS).rows if record else ()
    trajectory = _trajectory(evals)
    state = str(record.get("state", JobState.PENDING.value))
    return CellResult(
        cell=cell.id,
        axis_values=cell.axis_values,
        ratios=cell.ratios,
        arm=cell.arm,
        seed=cell.seed,
        state=state,
        reason=str(record.get("reason") or ""),
        base_score=trajectory.scores[0] if trajectory.steps[:1] == (0,) else None,
        final_score=_final_score(trajectory, cell.run.eval.window),
        trajectory=trajectory,
        seconds=_seconds(metrics, evals),
        num_tokens=int(metrics[-1].get("num_tokens", 0)) if metrics else 0,
        num_parameters=int(record.get("num_parameters") or 0),
        run_folder=f"{layout.RUNS}/{cell.id}",
        metrics=_series(metrics),
    )


def collect_findings(plan: Plan, store: HasFolder) -> list[Finding]:
    """Return what the health checks say of every cell that has begun."""
    from stepladder.monitors.health import check_run
    from stepladder.store.run_store import RunStore

    found: list[Finding] = []
    for cell in plan.cells:
        folder = cell_folder(store.folder, cell)
        if read_run(folder):
            findings = check_run(RunStore(folder).record())
            found.extend(replace(finding, run=cell.id) for finding in findings)
    return found


def _trajectory(evals: Sequence[Mapping[str, Any]]) -> Trajectory:
    """Return the held-out scores by step; a step evaluated again after a resume counts once."""
    by_step: dict[int, tuple[float, int]] = {}
    for row in evals:
        score = row.get("m", {}).get(SCORE)
        if score is not None:
            by_step[int(row["step"])] = (float(score), int(row.get("num_samples", 0)))
    ordered = sorted(by_step.items())
    return Trajectory(
        steps=tuple(step for step, _ in ordered),
        scores=tuple(score for _, (score, _) in ordered),
        samples=tuple(samples for _, (_, samples) in ordered),
    )


def _final_score(trajectory: Trajectory, window: int) -> float | None:
    """Return the mean of the last `window` evaluations after step 0."""
    trained = [s for s, step in zip(trajectory.scores, trajectory.steps, strict=True) if step > 0]
    last = trained[-window:]
    return sum(last) / len(last) if last else None


def _seconds(metrics: Sequence[Mapping[str, Any]], evals: Sequence[Mapping[str, Any]]) -> float:
    training = sum(float(row.get("sys", {}).get("time_step_s", 0.0)) for row in metrics)
    return training + sum(float(row.get("sys", {}).get("time_eval_s", 0.0)) for row in evals)


def _series(metrics: Sequence[Mapping[str, Any]]) -> dict[str, tuple[tuple[int, float], ...]]:
    stride = -(-len(metrics) // MAX_POINTS) or 1
    kept = metrics[::stride]
    found: dict[str, tuple[tuple[int, float], ...]] = {}
    for name in SERIES:
        values = [(int(r["step"]), float(r["m"][name])) for r in kept if name in r.get("m", {})]
        if values:
            found[name] = tuple(values)
    return found
