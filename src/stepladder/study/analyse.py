"""Analysis: cells become curves, effects, fits, forecasts and the verdict of one StudyResult.

Pure and deterministic: the order of cells and findings changes nothing, and no clock is read.
Called by the commands that run or report a study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from stepladder.core.finding import Finding
from stepladder.core.result import CellResult, Effect, SettingChange, StudyResult
from stepladder.stats.effects import difference_interval, holm, welch_p
from stepladder.study.allocate import fits_of, forecasts_of
from stepladder.study.cell import Plan
from stepladder.study.evidence import (
    ADJUSTED,
    AXES,
    FINISHED,
    METRIC,
    UNADJUSTED,
    Evidence,
    Point,
    curves_of,
    is_base,
    study_points,
)
from stepladder.study.gates import effect_key
from stepladder.study.verdict import decide


def analyse(plan: Plan, cells: Sequence[CellResult], findings: Sequence[Finding]) -> StudyResult:
    """Return everything a report says about a study, finished or not."""
    evidence = gather(plan, cells, findings)
    return StudyResult(
        study=plan.spec.name,
        plan_id=plan.plan_id,
        created=plan.created,
        metric=METRIC,
        cells=evidence.cells,
        curves=curves_of(evidence.points),
        effects=evidence.effects,
        fits=fits_of(evidence),
        forecasts=evidence.forecasts,
        findings=evidence.findings,
        settings=_settings(plan),
        verdict=decide(evidence),
        facts=_facts(plan, evidence.cells),
    )


def gather(plan: Plan, cells: Sequence[CellResult], findings: Sequence[Finding]) -> Evidence:
    """Return the evidence of a study in one fixed order, effects and forecasts included."""
    place = {cell.id: i for i, cell in enumerate(plan.cells)}
    ordered = tuple(sorted(cells, key=lambda c: (place.get(c.cell, len(place)), c.cell)))
    found = tuple(
        sorted(
            findings,
            key=lambda f: (place.get(f.run, -1 if not f.run else len(place)), f.run, f.detector),
        )
    )
    evidence = Evidence(
        plan=plan, cells=ordered, findings=found, points=study_points(plan, ordered)
    )
    evidence = replace(evidence, effects=effects_of(evidence))
    return replace(evidence, forecasts=forecasts_of(evidence))


def effects_of(evidence: Evidence) -> tuple[Effect, ...]:
    """Return every difference along an axis and between arms; Holm runs over the stated ones.

    A stated contrast that has no data still counts in Holm's family.
    """
    stated = evidence.plan.stated_contrasts
    found: dict[str, Effect] = {}
    for axis in AXES:
        arm = evidence.arm_of(axis)
        for low, high in combinations(evidence.along(axis), 2):
            for end, start in ((high, low), (low, high)):
                key = effect_key(axis, end.label, start.label, arm)
                # Downwards only where the study asked for it that way round.
                if end is high or key in stated:
                    found[key] = _effect(key, end, start, key in stated)
        for end in evidence.along(axis, UNADJUSTED):
            partner = _partner(evidence.along(axis, ADJUSTED), end)
            if partner is not None and not is_base(end):
                key = f"{axis}:{end.label}:adjusted-unadjusted"
                found[key] = _effect(key, partner, end, key in stated)
    family = [key for key in found if found[key].stated]
    adjusted = holm([found[key].p_value for key in family], len(stated))
    for key, p in zip(family, adjusted, strict=True):
        found[key] = replace(found[key], p_holm=p)
    return tuple(found.values())


def _partner(points: Sequence[Point], other: Point) -> Point | None:
    return next((p for p in points if p.label == other.label), None)


def _effect(key: str, end: Point, start: Point, stated: bool) -> Effect:
    interval = difference_interval(end.values, start.values, end.spread, start.spread)
    if min(_interval_seeds(end), _interval_seeds(start)) < 1:
        interval = replace(interval, low=None, high=None)
    return Effect(
        key=key,
        difference=interval,
        p_value=welch_p(end.values, start.values),
        stated=stated,
    )


def _interval_seeds(point: Point) -> int:
    """Return the seeds that may carry an interval: none while a lone one's siblings run."""
    return 0 if point.score.low is None else len(point.values)


def _settings(plan: Plan) -> tuple[SettingChange, ...]:
    """Return each change once, not once a seed."""
    found: dict[SettingChange, None] = {}
    for cell in plan.cells:
        for change in cell.changes:
            found.setdefault(change)
    return tuple(found)


def _facts(plan: Plan, cells: Sequence[CellResult]) -> Mapping[str, str | float | int]:
    facts: dict[str, str | float | int] = {
        name: value for name, value in plan.facts.items() if isinstance(value, (str, float, int))
    }
    if plan.budget_s is not None:
        facts["budget_s"] = plan.budget_s
    facts["target_axis"] = plan.spec.target.axis
    facts["num_cells"] = len(cells)
    facts["num_finished"] = sum(c.state in FINISHED for c in cells)
    # Sorted, so that the order of the cells cannot move the last bit.
    facts["cell_seconds"] = math.fsum(sorted(c.seconds for c in cells))
    facts["num_tokens"] = sum(c.num_tokens for c in cells)
    return facts
