"""Caveats: what a reader must know beside the verdict. Called by `verdict` only."""

from __future__ import annotations

import math
from collections.abc import Iterable

from stepladder.core.result import Effect, Reason
from stepladder.study import caveat_texts as say
from stepladder.study.evidence import (
    AXES,
    BROKEN,
    FINISHED,
    LONG,
    UNADJUSTED,
    Evidence,
    Point,
    axis_of,
    is_base,
    score_at,
)
from stepladder.study.gates import CEILING, broken, co_adjusted, effect_key

LEAST_SEEDS = 3
STILL_RISING = 0.01
"""A rise over the last third of training that counts as not yet flat."""


def caveats_of(evidence: Evidence) -> tuple[Reason, ...]:
    """Return every caveat, the ones that touch all numbers first."""
    return (
        *(_note(say.CAVEAT_TRIMMED, what=what) for what in evidence.plan.trims),
        *_unfinished(evidence),
        *_thin_points(evidence),
        *_tuning(evidence),
        *_lower_sizes(evidence),
        *_measurement(evidence),
    )


def _note(key: str, **values: float | int | str) -> Reason:
    return Reason(key=key, values=values)


def _unfinished(evidence: Evidence) -> Iterable[Reason]:
    pending = sum(c.state not in FINISHED for c in evidence.cells)
    if pending:
        yield _note(say.CAVEAT_PENDING, n=pending)
    for cell in evidence.cells:
        if cell.state in BROKEN and cell.arm != UNADJUSTED:
            yield _note(
                say.CAVEAT_STOPPED,
                cell=cell.cell,
                state=cell.state,
                reason=cell.reason or say.NO_REASON,
            )
    control = [c for c in evidence.cells if c.arm == UNADJUSTED]
    bad = broken(evidence, control)
    if bad:
        yield _note(say.CAVEAT_CONTROL_BROKEN, num_bad=len(bad), n=len(control))


def _thin_points(evidence: Evidence) -> Iterable[Reason]:
    for axis in AXES:
        for point in evidence.along(axis):
            if len(point.values) >= LEAST_SEEDS:
                continue
            if is_base(point) and axis != evidence.plan.spec.target.axis:
                continue
            if len(point.values) == 1 and any(c.arm == LONG for c in point.cells):
                yield _note(say.CAVEAT_LONG_ONE_SEED, point=point.label)
            else:
                yield _note(say.CAVEAT_FEW_SEEDS, axis=axis, point=point.label, n=len(point.values))
    for point in evidence.unscored():
        axis = point.axis
        yield _note(say.CAVEAT_POINT_MISSING, axis=axis, point=point.label, n=len(point.cells))


def _tuning(evidence: Evidence) -> Iterable[Reason]:
    """Say where size and tuning cannot be told apart, and where the control differs for sure."""
    for axis in AXES[:2]:
        varied = [p for p in evidence.along(axis) if not is_base(p)]
        if varied and not co_adjusted(evidence, axis) and axis == "model":
            yield _note(say.CAVEAT_NO_ADJUSTED, axis=axis)
            continue
        for point in varied:
            effect = _effect(evidence, f"{axis}:{point.label}:adjusted-unadjusted")
            planned = any(
                c.arm == UNADJUSTED and c.axis_values.get(axis) == point.label
                for c in evidence.cells
                if axis_of(c) == axis
            )
            if effect is not None:
                yield from _control(point, effect)
            elif axis == "model" and not planned:
                yield _note(say.CAVEAT_NO_CONTROL, axis=axis, point=point.label)


def _control(point: Point, effect: Effect) -> Iterable[Reason]:
    gap = effect.difference
    if gap.low is None or gap.high is None:
        return
    # Told as the control against the adjusted arm, so the sign is turned.
    values = {"difference": -gap.mean, "low": -gap.high, "high": -gap.low}
    if gap.low > 0:
        yield _note(say.CAVEAT_MISTUNED_CONTROL, point=point.label, n=gap.n, **values)
    elif gap.high < 0:
        yield _note(say.CAVEAT_CONTROL_BETTER, point=point.label, n=gap.n, **values)


def _effect(evidence: Evidence, key: str) -> Effect | None:
    return next((effect for effect in evidence.effects if effect.key == key), None)


def _lower_sizes(evidence: Evidence) -> Iterable[Reason]:
    """Say why a larger size ends lower than the base size, as far as the records tell."""
    base = evidence.base
    if base is None:
        return
    for point in evidence.along("model"):
        key = effect_key("model", point.label, base.label_on("model"), evidence.arm_of("model"))
        effect = None if is_base(point) else _effect(evidence, key)
        if effect is not None and effect.difference.mean < 0:
            yield _why_lower(evidence, base, point, effect)


def _why_lower(evidence: Evidence, base: Point, point: Point, effect: Effect) -> Reason:
    gap = effect.difference
    own: dict[str, float | int | str] = {
        "point": point.label,
        "difference": gap.mean,
        "n": gap.n,
    }
    bounds = {"low": gap.low or 0.0, "high": gap.high or 0.0}
    sick = broken(evidence, point.cells)
    control = next((p for p in evidence.along("model", UNADJUSTED) if p.label == point.label), None)
    rise = _late_rise(point)
    if sick:
        return Reason(key=say.CAVEAT_LOWER_HEALTH, values=own | {"num_bad": len(sick)})
    if base.mean > CEILING:
        return Reason(key=say.CAVEAT_LOWER_CEILING, values=own | {"score": base.mean})
    if gap.low is not None and gap.high is not None and gap.high >= 0:
        return Reason(key=say.CAVEAT_LOWER_NOISE, values=own | bounds)
    tuned = _effect(evidence, f"model:{point.label}:adjusted-unadjusted")
    if control and tuned and tuned.difference.high is not None and tuned.difference.high < 0:
        worse_by_rules = control.mean - base.mean
        return Reason(key=say.CAVEAT_LOWER_TUNING, values=own | {"control": worse_by_rules})
    if rise is not None and rise > STILL_RISING:
        return Reason(key=say.CAVEAT_LOWER_RISING, values=own | {"rise": rise})
    return Reason(key=say.CAVEAT_LOWER_UNKNOWN, values=own | bounds)


def _late_rise(point: Point) -> float | None:
    """Return the mean rise of the score over the last third of training."""
    rises: list[float] = []
    for cell in point.cells:
        steps = cell.trajectory.steps
        if len(steps) >= LEAST_SEEDS:
            late = score_at(cell.trajectory, steps[-1])
            early = score_at(cell.trajectory, steps[-1] * 2 / 3)
            if late is not None and early is not None:
                rises.append(late - early)
    return math.fsum(rises) / len(rises) if rises else None


def _measurement(evidence: Evidence) -> Iterable[Reason]:
    base = evidence.base
    plan = evidence.plan
    if base is not None:
        if base.mean > CEILING:
            yield _note(say.CAVEAT_CEILING, score=base.mean)
        items = plan.spec.base.eval.num_prompts * plan.spec.base.eval.samples_per_prompt
        error = math.sqrt(max(base.mean * (1 - base.mean), 0.0) / items)
        margin = plan.spec.target.margin
        if error > margin:
            yield _note(say.CAVEAT_SMALL_EVAL, items=items, error=error, margin=margin)
    measured = {effect.key for effect in evidence.effects}
    for key in plan.stated_contrasts:
        if key not in measured:
            yield _note(say.CAVEAT_CONTRAST, contrast=key)
