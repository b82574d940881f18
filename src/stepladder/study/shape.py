"""Shapes and cells: the axes of a study unrolled, one axis at a time, into runs.

A `Shape` says how much of the study is run (what a budget may trim); `cost` searches shapes, `plan`
turns the chosen one into cells. A `PlanPoint` is one axis value in one arm, before the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepladder.core.result import SettingChange
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec
from stepladder.study.cell import Cell
from stepladder.study.model_size import model_label, model_ratio
from stepladder.study.recipe import (
    RULES,
    Rule,
    apply_rules,
    kept_settings,
    rules_for,
    with_settings,
)

AXES: tuple[str, ...] = ("model", "samples_per_prompt", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much of a study is run."""

    steps: int
    long_ratio: float
    """1 leaves the long run out."""
    samples: tuple[int, ...]
    """Values of the samples axis, the base first."""
    unadjusted: tuple[str, ...]
    """Models that also run the unadjusted arm."""
    seeds: tuple[int, ...]

    @property
    def long_steps(self) -> int:
        """Steps of the long run."""
        return round(self.steps * self.long_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPoint:
    """One point of one axis in one arm; every seed of it is a cell."""

    axis: str
    """The scaled axis; empty for the base, which all axes share."""
    label: str
    arm: str
    model: str
    samples: int
    steps: int
    ratio: float
    """Multiple of the base along `axis`."""
    seeds: tuple[int, ...]

    @property
    def kind(self) -> str:
        """Kind of run for costs: what decides the seconds of a step."""
        return cost_kind(self.model, self.samples)

    @property
    def duration_key(self) -> str:
        """Key of the estimated seconds of a cell."""
        return f"{self.kind}@{self.steps}"

    @property
    def cell_kind(self) -> str:
        """Axis point and arm for people, such as `model=ladder-x2 adjusted`."""
        values = {
            "model": self.label,
            "samples_per_prompt": str(self.samples),
            "steps": f"{self.ratio:g}",
        }
        return f"{self.axis}={values[self.axis]} {self.arm}" if self.axis else self.arm


def cost_kind(model: str, samples: int) -> str:
    """Return the key under which a run's cost is kept."""
    return f"{model}/g{samples}"


def full_shape(spec: StudySpec) -> Shape:
    """Return the shape that the study asks for."""
    control = spec.rules.control and bool(rules_for("model", RULES[spec.rules.use]))
    return Shape(
        steps=spec.base.budget.steps,
        long_ratio=spec.long_run.ratio,
        samples=spec.axes.samples_per_prompt,
        unadjusted=spec.axes.model[1:] if control else (),
        seeds=spec.seeds,
    )


def plan_points(spec: StudySpec, shape: Shape) -> list[PlanPoint]:
    """Return the base point and then one point a value of each axis, arms apart."""
    base_model, base_samples = spec.axes.model[0], shape.samples[0]

    def point(axis: str, label: str, arm: str, **changed: Any) -> PlanPoint:
        fields: dict[str, Any] = {
            "model": base_model,
            "samples": base_samples,
            "steps": shape.steps,
            "ratio": 1.0,
            "seeds": shape.seeds,
        }
        return PlanPoint(axis=axis, label=label, arm=arm, **{**fields, **changed})

    found = [point("", model_label(base_model), "base")]
    for model in spec.axes.model[1:]:
        ratio = model_ratio(model, base_model)
        label = model_label(model)
        found.append(point("model", label, "adjusted", model=model, ratio=ratio))
        if model in shape.unadjusted:
            found.append(point("model", label, "unadjusted", model=model, ratio=ratio))
    for samples in shape.samples[1:]:
        label, ratio = f"samples{samples}", samples / base_samples
        found.append(point("samples_per_prompt", label, "adjusted", samples=samples, ratio=ratio))
    if shape.long_ratio > 1:
        steps, seeds = shape.long_steps, shape.seeds[: spec.long_run.num_seeds]
        ratio = steps / shape.steps
        label = f"steps{ratio:g}"
        found.append(point("steps", label, "long", steps=steps, ratio=ratio, seeds=seeds))
    return found


def build_cells(
    spec: StudySpec, shape: Shape, provenance: Mapping[str, str], seconds: Mapping[str, float]
) -> tuple[Cell, ...]:
    """Return every cell of a shape; `seconds` maps a point's duration key to an estimate.

    Raises
        PlanError: a cell's settings contradict each other.
    """
    origin = {
        leaf.removeprefix("base."): source
        for leaf, source in provenance.items()
        if leaf.startswith("base.")
    }
    rules = RULES[spec.rules.use]
    cells: list[Cell] = []
    for point in plan_points(spec, shape):
        run, changes = _run_of(spec, point, rules)
        sources = {**origin, **_sources(spec, point, changes)}
        estimated_s = seconds.get(point.duration_key)
        cells.extend(_cell(point, run, changes, sources, seed, estimated_s) for seed in point.seeds)
    return tuple(cells)


def _run_of(
    spec: StudySpec, point: PlanPoint, rules: Sequence[Rule]
) -> tuple[RunSpec, tuple[SettingChange, ...]]:
    settings = {
        "model.path": point.model,
        "sampling.samples_per_prompt": point.samples,
        "budget.steps": point.steps,
    }
    run = with_settings(spec.base, settings, point.cell_kind)
    if point.arm == "adjusted":
        return apply_rules(run, point.axis, point.ratio, rules, cell_kind=point.cell_kind)
    if point.arm == "unadjusted":
        return run, kept_settings(run, point.axis, rules, cell_kind=point.cell_kind)
    return run, ()


def _sources(spec: StudySpec, point: PlanPoint, changes: Sequence[SettingChange]) -> dict[str, str]:
    """Return leaf -> origin for what the plan itself decides."""
    found = {
        "name": "plan",
        "seed": "study seeds",
        "model.path": "axis model",
        "sampling.samples_per_prompt": "axis samples_per_prompt",
    }
    if point.arm == "long":
        found["budget.steps"] = "axis steps"
    elif point.steps != spec.base.budget.steps:
        found["budget.steps"] = "budget"
    if point.arm == "adjusted":
        found.update({change.path: f"rule {change.rule}" for change in changes})
    return found


def _cell(
    point: PlanPoint,
    run: RunSpec,
    changes: tuple[SettingChange, ...],
    sources: Mapping[str, str],
    seed: int,
    estimated_s: float | None,
) -> Cell:
    stem = f"{point.label}-{point.arm}-s{seed}"
    seeded = with_settings(run, {"seed": seed, "name": stem}, point.cell_kind)
    ratios = dict.fromkeys(AXES, 1.0)
    if point.axis:
        ratios[point.axis] = point.ratio
    return Cell(
        id=f"{stem}-{seeded.run_id}",
        axis_values={
            "model": point.model,
            "samples_per_prompt": str(point.samples),
            "steps": f"{ratios['steps']:g}",
        },
        ratios=ratios,
        arm=point.arm,
        seed=seed,
        run=seeded,
        changes=changes,
        provenance={leaf: sources.get(leaf, "default") for leaf in seeded.leaves()},
        estimated_s=estimated_s,
    )
