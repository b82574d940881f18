"""Small studies for decision tests: a plan without files and cells with the scores one asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepladder.core.finding import Finding, Outcome, Severity
from stepladder.core.result import CellResult, Trajectory
from stepladder.spec.study import StudySpec
from stepladder.study.cell import Plan

SIZES = ("ladder-x1", "ladder-x2", "ladder-x4")
STEPS = 100
CONTRASTS = (
    "model:ladder-x2-ladder-x1:adjusted",
    "model:ladder-x4-ladder-x2:adjusted",
    "model:ladder-x2:adjusted-unadjusted",
    "model:ladder-x4:adjusted-unadjusted",
    "samples_per_prompt:8-4",
    "samples_per_prompt:16-8",
    "steps:0.5-0.25",
    "steps:1-0.5",
)
WIGGLE = (-0.01, 0.0, 0.01, -0.005, 0.005, 0.008, -0.008)


def make_plan(trims: Sequence[str] = (), contrasts: Sequence[str] = CONTRASTS, **spec: Any) -> Plan:
    settings: dict[str, Any] = {"base": {"eval": {"num_prompts": 512}}} | spec
    return Plan(
        plan_id="p0",
        format_version=1,
        created="2026-01-01T00:00:00+00:00",
        spec=StudySpec.model_validate(settings),
        cells=(),
        costs={},
        budget_s=300.0,
        trims=tuple(trims),
        stated_contrasts=tuple(contrasts),
        facts={"host": "test", "cores": 2},
    )


def make_trajectory(base: float, final: float, steps: int = STEPS) -> Trajectory:
    """Rise by a log-linear loss from step 20 on to `final` at the last step."""
    places = tuple(range(0, steps + 1, 20))
    shape = {p: (p / steps) ** 0.4 for p in places}
    return Trajectory(
        steps=places,
        scores=tuple(base + (final - base) * shape[p] for p in places),
        samples=tuple(p * 256 for p in places),
    )


def make_cell(
    seed: int,
    final: float | None,
    *,
    arm: str = "base",
    model: str = "ladder-x1",
    samples: int = 8,
    steps_ratio: float = 1.0,
    base_score: float | None = 0.3,
    state: str = "done",
    seconds: float | None = None,
    reason: str = "",
) -> CellResult:
    ratios = {
        "model": float(2 ** SIZES.index(model)),
        "samples_per_prompt": samples / 8,
        "steps": steps_ratio,
    }
    cost = 10.0 * ratios["samples_per_prompt"] * steps_ratio * (1 + ratios["model"]) / 2
    empty = Trajectory(steps=(), scores=(), samples=())
    cell = f"{model}-g{samples}-t{steps_ratio:g}-{arm}-s{seed}"
    return CellResult(
        cell=cell,
        axis_values={
            "model": model,
            "samples_per_prompt": str(samples),
            "steps": f"{steps_ratio:g}",
        },
        ratios=ratios,
        arm=arm,
        seed=seed,
        state=state,
        reason=reason,
        base_score=base_score,
        final_score=final,
        trajectory=empty
        if final is None
        else make_trajectory(base_score or 0.0, final, int(STEPS * steps_ratio)),
        seconds=cost if seconds is None else seconds,
        num_tokens=1000,
        num_parameters=50_000,
        run_folder=f"runs/{cell}",
    )


DEFAULT_MEANS: Mapping[str, float] = {
    "base": 0.60,
    "x2": 0.66,
    "x4": 0.72,
    "x2u": 0.63,
    "x4u": 0.66,
    "g4": 0.56,
    "g16": 0.63,
    "long": 0.66,
}
PLACES: Mapping[str, dict[str, Any]] = {
    "base": {},
    "x2": {"arm": "adjusted", "model": "ladder-x2"},
    "x4": {"arm": "adjusted", "model": "ladder-x4"},
    "x2u": {"arm": "unadjusted", "model": "ladder-x2"},
    "x4u": {"arm": "unadjusted", "model": "ladder-x4"},
    "g4": {"arm": "adjusted", "samples": 4},
    "g16": {"arm": "adjusted", "samples": 16},
    "long": {"arm": "long", "steps_ratio": 2.0},
}


def make_cells(
    *,
    seeds: int = 3,
    noise: float = 1.0,
    without: Sequence[str] = (),
    base_score: float = 0.3,
    **means: float,
) -> list[CellResult]:
    """Return a whole study; every mean can be named, `noise` scales the seeds' wiggle."""
    cells: list[CellResult] = []
    for place, (name, settings) in enumerate(PLACES.items()):
        if name in without:
            continue
        count = 1 if name == "long" else seeds
        for seed in range(1, count + 1):
            # Turned by the place, so that arms do not wiggle together.
            wiggle = WIGGLE[(seed - 1 + place) % len(WIGGLE)] * noise
            mean = means.get(name, DEFAULT_MEANS[name])
            cells.append(make_cell(seed, mean + wiggle, base_score=base_score, **settings))
    return cells


def make_critical(cell: CellResult, detector: str = "K1") -> Finding:
    return Finding(
        detector=detector, outcome=Outcome.FIRED, severity=Severity.CRITICAL, run=cell.cell
    )
