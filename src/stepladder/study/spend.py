"""Spend: the next unit of compute, as an axis to climb or as the cheapest run that decides.

Called by `verdict` only; the comparison of axes at equal added cost is `allocate`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stepladder.core.result import Forecast, Reason
from stepladder.stats.effects import MAX_SEEDS, seeds_needed
from stepladder.study import reasons as say
from stepladder.study.allocate import Choice, choice_of, error_of
from stepladder.study.evidence import FINISHED, Evidence, Point
from stepladder.study.gates import CEILING, Gate

PLATEAU = 0.01
"""Upper bound on a doubling's gain below which an axis is flat (scaling.md 5.4)."""
USEFUL_SEEDS = 20
"""More further seeds than this are not offered: another design is cheaper."""
LEAST_SEEDS = 3


def next_axis(evidence: Evidence) -> Reason:
    """Return the axis to climb, or what would tell which."""
    known = [f for f in evidence.forecasts if f.gain_at_equal_cost is not None]
    if known and all((f.gain.high or 0.0) < PLATEAU for f in known):
        return Reason(key=say.SPEND_NO_AXIS_GAINS, values={"line": PLATEAU})
    choice = choice_of(evidence.forecasts)
    if choice is None:
        return Reason(
            key=say.SPEND_NO_FORECAST,
            values={
                "num_forecasts": len(known),
                "num_axes": len(evidence.forecasts),
                "seeds": LEAST_SEEDS,
            },
        )
    if choice.decided and _gains(choice.best):
        gain = choice.best.gain_at_equal_cost
        assert gain is not None
        return Reason(
            key=say.SPEND_AXIS,
            values={
                "axis": choice.best.axis,
                "start": choice.best.from_label,
                "end": choice.best.to_label,
                "gain": gain.mean,
                "low": gain.low or 0.0,
                "high": gain.high or 0.0,
                "p_best": choice.best.probability_best or 0.0,
            },
            sign=1,
        )
    base = evidence.base
    if base is not None and base.mean > CEILING:
        # Near the ceiling no doubling can show a gain, so measuring one decides nothing.
        return Reason(key=say.DECIDE_HARDER_TASK, values={"score": base.mean})
    return _part_axes(evidence, choice)


def _gains(forecast: Forecast) -> bool:
    return forecast.gain_at_equal_cost is not None and forecast.gain_at_equal_cost.mean > 0


def _part_axes(evidence: Evidence, choice: Choice) -> Reason:
    """Return the cheapest doubling whose measurement would part the two leading axes.

    Measured rather than forecast, a doubling has no family error left, only that of its seeds.
    """
    named: dict[str, float | int | str] = {
        "axis": choice.best.axis,
        "second": choice.second.axis,
    }
    offers = [
        offer
        for mine, other in ((choice.best, choice.second), (choice.second, choice.best))
        if (offer := _measured_doubling(evidence, choice, mine, other)) is not None
    ]
    if not offers:
        gain = choice.best.gain_at_equal_cost
        mean = gain.mean if gain is not None else 0.0
        return Reason(key=say.SPEND_TIE, values=named | {"gain": mean})
    cost_s, seeds, place = min(offers)
    return Reason(
        key=say.SPEND_UNDECIDED,
        values=named
        | {
            "p_best": choice.best.probability_best or 0.0,
            "seeds": seeds,
            "point": place,
            "cost_s": cost_s,
        },
    )


def _measured_doubling(
    evidence: Evidence, choice: Choice, mine: Forecast, other: Forecast
) -> tuple[float, int, str] | None:
    """Return cost, seeds and place of the doubling on one axis; None when it would not decide."""
    point = evidence.along(mine.axis)[-1]
    own, theirs = mine.gain_at_equal_cost, other.gain_at_equal_cost
    assert own is not None and theirs is not None
    if choice.difference <= 0 or point.seconds is None or point.spread is None:
        return None
    room = choice.error_needed**2 - error_of(theirs) ** 2
    # A doubling's gain counts by the share that equal added cost buys.
    share = own.mean / mine.gain.mean if mine.gain.mean else 1.0
    allowed = room / (point.spread.sd * share) ** 2 - 1 / len(point.values)
    if room <= 0 or allowed <= 0:
        return None
    seeds = max(2, math.ceil(1 / allowed))
    if seeds > USEFUL_SEEDS:
        return None
    cost_s = seeds * (point.seconds + (mine.added_cost_s or 0.0))
    return cost_s, seeds, f"{mine.axis}={mine.to_label}"


def repair(evidence: Evidence, gate: Gate) -> Reason:
    """Return what to mend before anything is scaled."""
    point = gate.point or evidence.base
    seeds = max(LEAST_SEEDS, len(point.values)) if point else LEAST_SEEDS
    seconds = (point.seconds if point else None) or _typical_seconds(evidence)
    values: dict[str, float | int | str] = {"seeds": seeds, "cost_s": seeds * seconds}
    if gate.name == "health" and point is not None:
        return Reason(
            key=say.SPEND_REPAIR,
            values=values | {"axis": point.axis, "point": point.label},
            sign=-1,
        )
    return Reason(key=say.SPEND_CHANGE_RECIPE, values=values | {"point": _name(point)}, sign=-1)


def _name(point: Point | None) -> str:
    return f"{point.axis}={point.label}" if point is not None else say.BASE_POINT


def _typical_seconds(evidence: Evidence) -> float:
    known = sorted(c.seconds for c in evidence.cells if c.state == "done")
    return known[len(known) // 2] if known else 0.0


def deciding_run(evidence: Evidence, gates: Sequence[Gate]) -> Reason:
    """Return the cheapest experiment that would settle an open question.

    What is planned comes first, then what broke, then what was never measured: those cannot be
    settled by numbers. The rest is settled by seeds or steps; the dearest question is priced,
    since all of them must be settled.
    """
    pending = sum(c.state not in FINISHED for c in evidence.cells)
    if pending:
        return Reason(key=say.DECIDE_FINISH, values={"num_pending": pending})
    for gate in gates:
        if gate.name == "health":
            return _rerun(evidence, gate)
    for gate in gates:
        certain = _by_kind(evidence, gate)
        if certain is not None:
            return certain
    numbers = [g for g in gates if g.name in ("gain", "scale")]
    if not numbers:
        return _forecast_point(evidence)
    offers = [(_seeds_to_settle(g), g) for g in numbers]
    further, gate = max(offers, key=lambda offer: offer[0] * (_seconds(evidence, offer[1])))
    return _seeds_or_steps(evidence, gate, further)


def _rerun(evidence: Evidence, gate: Gate) -> Reason:
    if not gate.cells:
        values = {"detectors": gate.reason.values.get("detectors", "")}
        return Reason(key=say.DECIDE_STUDY_FINDING, values=values)
    point = gate.point or evidence.base
    seconds = (point.seconds if point else None) or _typical_seconds(evidence)
    seeds = max(2, len(gate.cells))
    return Reason(
        key=say.DECIDE_RERUN,
        values={
            "cell": gate.cells[0].cell,
            "seeds": seeds,
            "point": _name(point),
            "cost_s": seeds * seconds,
        },
    )


def _by_kind(evidence: Evidence, gate: Gate) -> Reason | None:
    """Return the experiment where the kind of gap names it; None where numbers do."""
    key, base = gate.reason.key, evidence.base
    if key == say.GAIN_NOT_MEASURED:
        values: dict[str, float | int | str] = {"point": say.BASE_POINT, "seeds": LEAST_SEEDS}
        return Reason(key=say.DECIDE_MEASURE, values=values)
    if key == say.SCALE_NOT_MEASURED:
        axis = evidence.plan.spec.target.axis
        return Reason(key=say.DECIDE_SECOND_POINT, values={"axis": axis, "seeds": LEAST_SEEDS})
    if key == say.GAIN_NO_ROOM and base is not None:
        return Reason(key=say.DECIDE_HARDER_TASK, values={"score": base.mean})
    if key in (say.SCALE_MISTUNED, say.SCALE_DIPS):
        seconds = _seconds(evidence, gate)
        return Reason(
            key=say.DECIDE_DIP if key == say.SCALE_DIPS else say.DECIDE_ADJUSTED,
            values={
                "point": _name(gate.point),
                "seeds": LEAST_SEEDS,
                "cost_s": LEAST_SEEDS * seconds,
            },
        )
    # A task at its ceiling cannot show that anything still gains.
    if gate.name == "trend" and base is not None and base.mean > CEILING:
        return Reason(key=say.DECIDE_HARDER_TASK, values={"score": base.mean})
    return None


def _forecast_point(evidence: Evidence) -> Reason:
    axis = evidence.plan.spec.target.axis
    points = evidence.along(axis)
    start = points[-1].label if points else say.BASE_POINT
    return Reason(
        key=say.DECIDE_FORECAST, values={"axis": axis, "start": start, "seeds": LEAST_SEEDS}
    )


def _seconds(evidence: Evidence, gate: Gate) -> float:
    """Return the cost of one more seed of what a gate compares: one arm or two."""
    points = [gate.point, evidence.base] if gate.name == "scale" else [gate.point]
    known = [p.seconds or _typical_seconds(evidence) for p in points if p is not None]
    return math.fsum(known)


def _gap(gate: Gate) -> float:
    return abs(gate.interval.mean - gate.line) if gate.interval is not None else 0.0


def _sd(gate: Gate) -> float:
    point = gate.point
    if point is None:
        return 0.0
    spread = point.gain_spread if gate.name == "gain" else point.spread
    return spread.sd if spread is not None else 0.0


def _seeds_to_settle(gate: Gate) -> int:
    """Return how many further seeds per arm part the number from its line; MAX_SEEDS: none do."""
    have = len(gate.point.values) if gate.point is not None else 0
    if gate.interval is None or have < 2:
        return max(1, LEAST_SEEDS - have)
    num_arms = 2 if gate.name == "scale" else 1
    needed = seeds_needed(_gap(gate), _sd(gate), num_arms=num_arms)
    return MAX_SEEDS if needed is None else max(1, needed - have)


def _seeds_or_steps(evidence: Evidence, gate: Gate, further: int) -> Reason:
    cost_s = further * _seconds(evidence, gate)
    longer = _longer(evidence, gate)
    if longer is not None and (further > USEFUL_SEEDS or float(longer.values["cost_s"]) < cost_s):
        return longer
    if further > USEFUL_SEEDS:
        return Reason(
            key=say.DECIDE_TOO_CLOSE,
            values={"point": _name(gate.point), "gap": _gap(gate), "sd": _sd(gate)},
        )
    place, base = _name(gate.point), evidence.base
    if gate.name == "scale" and base is not None and gate.point is not None:
        place = f"{place}, {gate.point.axis}={base.label_on(gate.point.axis)}"
    return Reason(
        key=say.DECIDE_SEEDS,
        values={
            "seeds": further,
            "point": place,
            "cost_s": cost_s,
            "sd": _sd(gate),
            "gap": _gap(gate),
        },
    )


def _longer(evidence: Evidence, gate: Gate) -> Reason | None:
    """Return the longer training that is forecast to lift the gain over its line; None without."""
    base = evidence.base
    steps = next((f for f in evidence.forecasts if f.axis == "steps" and not f.refused), None)
    if gate.name != "gain" or base is None or steps is None or gate.interval is None:
        return None
    if base.seconds is None or gate.interval.mean >= gate.line or not steps.gain.low:
        return None
    last = evidence.along("steps")[-1]
    lifted = gate.interval.mean + (last.mean - base.mean) + steps.gain.mean
    if steps.gain.low <= 0 or lifted < gate.line:
        return None
    factor = 2 * last.ratio
    return Reason(
        key=say.DECIDE_STEPS,
        values={
            "factor": factor,
            "forecast": lifted,
            "cost_s": LEAST_SEEDS * base.seconds * factor,
        },
    )
