"""Gates: the four questions behind the verdict, each answered passed, failed or open.

A gate holds its sentence and, where one number decides it, that number's interval and line, so that
`verdict` can say how many seeds would settle it. Called by `verdict` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from stepladder.core.result import CellResult, Effect, Interval, Reason
from stepladder.stats.curves import MIN_POINTS, Refusal
from stepladder.study import reasons as say
from stepladder.study.allocate import line_gain
from stepladder.study.evidence import (
    ADJUSTED,
    AXES,
    BROKEN,
    FINISHED,
    LONG,
    Evidence,
    Point,
    is_base,
    is_critical,
)

CEILING = 0.95
"""A score above this is near the task's ceiling: binomial noise and headroom both vanish there."""
NO_ROOM = 0.98
"""A base policy whose score plus the asked gain passes this cannot show the gain."""


class Status(StrEnum):
    """How a question stands."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One question of the verdict."""

    name: str
    """gain, scale, health or trend."""
    status: Status
    reason: Reason
    interval: Interval | None = None
    """The deciding number; None when no single one decides."""
    line: float = 0.0
    """What the interval must clear."""
    point: Point | None = None
    """Where more runs would help."""
    cells: tuple[CellResult, ...] = ()
    """The runs that stand against it."""

    @property
    def clearance(self) -> float | None:
        """Distance from the line in half-widths, past the bound; negative when not cleared."""
        found = self.interval
        if found is None or found.low is None or found.high is None:
            return None
        half = (found.high - found.low) / 2
        distance = abs(found.mean - self.line) - half
        return distance / half if half > 0 else float("inf")


SIGNS = {Status.PASSED: 1, Status.FAILED: -1, Status.OPEN: 0}


def all_gates(evidence: Evidence) -> tuple[Gate, ...]:
    """Return the four gates, the most telling first."""
    scale = scale_gate(evidence)
    return (
        gain_gate(evidence),
        scale,
        health_gate(evidence),
        trend_gate(evidence, scale),
    )


def _gate(
    name: str,
    status: Status,
    key: str,
    values: dict[str, float | int | str],
    *,
    interval: Interval | None = None,
    line: float = 0.0,
    point: Point | None = None,
) -> Gate:
    reason = Reason(key=key, values=values, sign=SIGNS[status])
    return Gate(name=name, status=status, reason=reason, interval=interval, line=line, point=point)


def gain_gate(evidence: Evidence) -> Gate:
    """Ask whether training at the base point gains enough over the base policy, on every seed."""
    base, line = evidence.base, evidence.plan.spec.target.min_gain
    if base is None or not base.gains:
        return _gate("gain", Status.OPEN, say.GAIN_NOT_MEASURED, {}, point=base)
    gain = base.gain
    if gain.low is None or gain.high is None or gain.n < 2:
        values: dict[str, float | int | str] = {"gain": gain.mean, "n": gain.n}
        return _gate("gain", Status.OPEN, say.GAIN_NO_INTERVAL, values, point=base)
    num_down = sum(value <= 0 for value in base.gains.values())
    before = base.mean - gain.mean
    values = {"gain": gain.mean, "low": gain.low, "high": gain.high, "n": gain.n, "line": line}
    if gain.low >= line and not num_down:
        status, key = Status.PASSED, say.GAIN_ENOUGH
    elif before + line > NO_ROOM:
        status, key = Status.OPEN, say.GAIN_NO_ROOM
        values["base_score"] = before
    elif gain.high < line:
        status, key = Status.FAILED, say.GAIN_TOO_SMALL
    elif num_down:
        status, key = Status.OPEN, say.GAIN_UNEVEN
        values["num_down"] = num_down
    else:
        status, key = Status.OPEN, say.GAIN_UNDECIDED
    return _gate("gain", status, key, values, interval=gain, line=line, point=base)


def scale_effect(evidence: Evidence) -> tuple[Point, Point, Effect] | None:
    """Return base point, largest point and their difference on the target axis; None without."""
    axis = evidence.plan.spec.target.axis
    base, points = evidence.base, evidence.along(axis)
    if base is None or not points or is_base(points[-1]):
        return None
    last = points[-1]
    key = effect_key(axis, last.label, base.label_on(axis), evidence.arm_of(axis))
    found = [effect for effect in evidence.effects if effect.key == key]
    return (base, last, found[0]) if found else None


def effect_key(axis: str, end: str, start: str, arm: str) -> str:
    """Return the key of a difference along an axis; only the model axis names its arm."""
    return f"{axis}:{end}-{start}" + (f":{arm}" if axis == "model" else "")


def co_adjusted(evidence: Evidence, axis: str) -> bool:
    """Return whether hyper-parameters moved with an axis; steps need no companion."""
    if axis == "steps":
        return True
    return evidence.arm_of(axis) == ADJUSTED and evidence.plan.spec.rules.use != "none"


def scale_gate(evidence: Evidence) -> Gate:
    """Ask whether the largest point of the target axis holds against the base point."""
    target = evidence.plan.spec.target
    found = scale_effect(evidence)
    if found is None:
        values: dict[str, float | int | str] = {"axis": target.axis}
        return _gate("scale", Status.OPEN, say.SCALE_NOT_MEASURED, values)
    base, last, effect = found
    gap = effect.difference
    values = {
        "axis": target.axis,
        "start": base.label_on(target.axis),
        "end": last.label,
        "difference": gap.mean,
        "n": gap.n,
    }
    if gap.low is None or gap.high is None or (gap.n < 2 and target.axis != "steps"):
        return _gate("scale", Status.OPEN, say.SCALE_NO_INTERVAL, values, point=last)
    values |= {"low": gap.low, "high": gap.high}
    dip = _dip(evidence)
    if gap.low > -target.margin and dip is not None:
        return dip
    if gap.low > -target.margin:
        status, key = Status.PASSED, say.SCALE_HOLDS
    elif not co_adjusted(evidence, target.axis):
        status, key = Status.OPEN, say.SCALE_MISTUNED
    elif gap.high < -target.margin:
        status, key = Status.FAILED, say.SCALE_FALLS
    else:
        status, key = Status.OPEN, say.SCALE_UNDECIDED
    if key != say.SCALE_MISTUNED:
        values["margin"] = target.margin
    return _gate("scale", status, key, values, interval=gap, line=-target.margin, point=last)


def _dip(evidence: Evidence) -> Gate | None:
    """Return the open gate of the first point that ends below its smaller neighbour; None: none."""
    target = evidence.plan.spec.target
    points = evidence.along(target.axis)
    for smaller, larger in pairwise(points):
        key = effect_key(target.axis, larger.label, smaller.label, evidence.arm_of(target.axis))
        gaps = [effect.difference for effect in evidence.effects if effect.key == key]
        if not gaps or gaps[0].low is None or gaps[0].high is None:
            continue
        if gaps[0].high >= -target.margin:
            continue
        values: dict[str, float | int | str] = {
            "start": smaller.label,
            "end": larger.label,
            "difference": gaps[0].mean,
            "low": gaps[0].low,
            "high": gaps[0].high,
            "n": gaps[0].n,
            "start_base": smaller.mean - smaller.gain.mean,
            "end_base": larger.mean - larger.gain.mean,
        }
        return _gate(
            "scale",
            Status.OPEN,
            say.SCALE_DIPS,
            values,
            interval=gaps[0],
            line=-target.margin,
            point=larger,
        )
    return None


def broken(evidence: Evidence, cells: Sequence[CellResult]) -> tuple[CellResult, ...]:
    """Return the cells that were stopped, failed or have a critical finding."""
    return tuple(c for c in cells if c.state in BROKEN or evidence.critical(c))


def detectors_of(evidence: Evidence, cells: Sequence[CellResult]) -> str:
    """Return what stopped these cells: detector ids, or the state where no detector spoke."""
    names = {f.detector for c in cells for f in evidence.critical(c)}
    names |= {c.state for c in cells if c.state in BROKEN and not evidence.critical(c)}
    return ", ".join(sorted(names))


def health_gate(evidence: Evidence) -> Gate:
    """Ask whether the recommended runs stayed healthy.

    Half of a point's seeds, and at least two, decide against it; a process that failed is not
    evidence about the recipe and only leaves the question open.
    """
    cells = evidence.recommended_cells()
    bad = broken(evidence, cells)
    for point in _own_points(evidence):
        sick = [c for c in point.cells if c.state == "stopped" or evidence.critical(c)]
        if len(sick) >= 2 and 2 * len(sick) >= len(point.cells):
            values: dict[str, float | int | str] = {
                "axis": point.axis,
                "point": point.label,
                "num_bad": len(sick),
                "n": len(point.cells),
                "detectors": detectors_of(evidence, sick),
            }
            gate = _gate("health", Status.FAILED, say.HEALTH_BROKEN, values, point=point)
            return replace(gate, cells=tuple(sick))
    n, pending = len(cells), sum(c.state not in FINISHED for c in cells)
    whole = sorted({f.detector for f in evidence.findings if is_critical(f) and not f.run})
    if bad:
        values = {
            "num_bad": len(bad),
            "n": n,
            "detectors": detectors_of(evidence, bad),
            "cell": bad[0].cell,
        }
        point = next((p for p in _own_points(evidence) if bad[0] in p.cells), None)
        return replace(
            _gate("health", Status.OPEN, say.HEALTH_SOME, values, point=point), cells=bad
        )
    if whole:
        values = {"num_bad": len(whole), "detectors": ", ".join(whole), "n": n}
        return _gate("health", Status.OPEN, say.HEALTH_STUDY, values)
    if pending or not cells:
        values = {"num_pending": pending, "n": n}
        return _gate("health", Status.OPEN, say.HEALTH_PENDING, values)
    return _gate("health", Status.PASSED, say.HEALTH_CLEAN, {"n": n})


def _own_points(evidence: Evidence) -> list[Point]:
    """Return each recommended point that has runs of its own: not the shares read from the base.

    The base point comes first and once; points without any score are not on a curve, so cells
    are grouped here rather than taken from the curves.
    """
    found = [evidence.base] if evidence.base else []
    for axis in AXES:
        found.extend(
            p
            for p in evidence.along(axis)
            if not is_base(p) and (axis != "steps" or any(c.arm == LONG for c in p.cells))
        )
    return [*found, *evidence.unscored()]


def trend_gate(evidence: Evidence, scale: Gate) -> Gate:
    """Ask whether anything is still to be gained: an axis' forecast, or the largest size itself."""
    target = evidence.plan.spec.target
    falls = _falling(evidence)
    if falls is not None:
        values: dict[str, float | int | str] = {
            "axis": target.axis,
            "ratio": target.ratio,
            "gain": falls.mean,
            "low": falls.low or 0.0,
            "high": falls.high or 0.0,
            "n": falls.n,
        }
        last = evidence.along(target.axis)[-1]
        return _gate(
            "trend",
            Status.FAILED,
            say.TREND_FALLS,
            values,
            interval=falls,
            line=-target.margin,
            point=last,
        )
    known = [f for f in evidence.forecasts if not f.refused and f.gain.low is not None]
    # The sort is stable: of equal gains the first axis is named.
    known.sort(key=lambda f: -(f.gain.low or 0.0))
    if known and (known[0].gain.low or 0.0) > 0:
        values = _forecast_values(known[0].axis, known[0].gain)
        return _gate("trend", Status.PASSED, say.TREND_FORECAST, values, interval=known[0].gain)
    sizes = evidence.along("model")
    largest = sizes[-1] if sizes and not is_base(sizes[-1]) else None
    own = largest.gain if largest else None
    if largest and own and own.low is not None and own.low > 0 and scale.status is Status.PASSED:
        values = {
            "label": largest.label,
            "gain": own.mean,
            "low": own.low,
            "high": own.high or 0.0,
            "n": own.n,
        }
        return _gate("trend", Status.PASSED, say.TREND_OWN_GAIN, values, interval=own)
    if not known:
        return _gate("trend", Status.OPEN, say.TREND_NO_FORECAST, {"n": MIN_POINTS})
    values = _forecast_values(known[0].axis, known[0].gain)
    point = evidence.along(known[0].axis)[-1]
    return _gate("trend", Status.OPEN, say.TREND_OPEN, values, interval=known[0].gain, point=point)


def _forecast_values(axis: str, gain: Interval) -> dict[str, float | int | str]:
    return {
        "axis": axis,
        "gain": gain.mean,
        "low": gain.low or 0.0,
        "high": gain.high or 0.0,
        "n": gain.n,
    }


def _falling(evidence: Evidence) -> Interval | None:
    """Return the forecast at the target against the base when even its upper end is a real fall."""
    target = evidence.plan.spec.target
    if target.axis == "steps" or not co_adjusted(evidence, target.axis):
        return None
    gain = line_gain(evidence.along(target.axis), target.ratio, start=1.0)
    if isinstance(gain, Refusal) or gain.high is None:
        return None
    return gain if gain.high < -target.margin else None
