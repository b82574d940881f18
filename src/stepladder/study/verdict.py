"""The verdict: GO, NO-GO or NOT ENOUGH EVIDENCE, three reasons, and where the next compute goes.

Called by `analyse`. The four questions stand in `gates`, the comparison of axes in `allocate`.
GO needs all four passed; NO-GO needs one that failed beyond its interval; all else is open.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepladder.core.result import Answer, Reason, Verdict
from stepladder.study import reasons as say
from stepladder.study.caveats import caveats_of
from stepladder.study.evidence import FINISHED, Evidence, Point
from stepladder.study.gates import Gate, Status, all_gates, scale_effect
from stepladder.study.spend import deciding_run, next_axis, repair

_ORDER = {Status.FAILED: 0, Status.OPEN: 1, Status.PASSED: 2}
_NUM_REASONS = 3
_MANY_SEEDS, _ENOUGH_SEEDS, _ENOUGH_POINTS = 5, 3, 3


def decide(evidence: Evidence) -> Verdict:
    """Return the one answer with its reasons."""
    gates = all_gates(evidence)
    answer = _answer(gates)
    # Stable: among equals the most telling question comes first.
    ranked = sorted(gates, key=lambda gate: _ORDER[gate.status])
    return Verdict(
        answer=answer,
        reasons=tuple(gate.reason for gate in ranked[:_NUM_REASONS]),
        next_spend=_next_spend(evidence, answer, ranked),
        what_would_change_it=_what_would_change_it(evidence, answer, ranked),
        confidence=_confidence(evidence, answer, gates),
        caveats=caveats_of(evidence),
    )


def _answer(gates: Sequence[Gate]) -> Answer:
    if any(gate.status is Status.FAILED for gate in gates):
        return Answer.NO_GO
    if all(gate.status is Status.PASSED for gate in gates):
        return Answer.GO
    return Answer.NOT_ENOUGH


def _next_spend(evidence: Evidence, answer: Answer, ranked: Sequence[Gate]) -> Reason:
    if answer is Answer.NO_GO:
        return repair(evidence, ranked[0])
    if answer is Answer.NOT_ENOUGH:
        return deciding_run(evidence, [g for g in ranked if g.status is Status.OPEN])
    return next_axis(evidence)


def _what_would_change_it(evidence: Evidence, answer: Answer, ranked: Sequence[Gate]) -> Reason:
    if answer is Answer.NOT_ENOUGH:
        num_open = sum(gate.status is Status.OPEN for gate in ranked)
        return Reason(key=say.CHANGE_DECIDING, values={"num_open": num_open})
    if answer is Answer.GO:
        return _what_would_sink_it([g for g in ranked if g.name in ("gain", "scale")])
    return _what_would_reopen_it(evidence, ranked[0])


def _what_would_sink_it(gates: Sequence[Gate]) -> Reason:
    """Name the bound that clears its line by the least of its own width."""
    nearest = min(gates, key=lambda g: float("inf") if g.clearance is None else g.clearance)
    found = nearest.interval
    low = found.low if found and found.low is not None else nearest.line
    values: dict[str, float | int | str] = {"low": low, "line": nearest.line}
    if nearest.name == "gain":
        return Reason(key=say.CHANGE_GAIN_LOW, values=values)
    ends = {name: nearest.reason.values[name] for name in ("start", "end")}
    return Reason(key=say.CHANGE_SCALE_LOW, values=values | ends)


def _what_would_reopen_it(evidence: Evidence, gate: Gate) -> Reason:
    given, target = gate.reason.values, evidence.plan.spec.target
    if gate.name == "gain":
        return Reason(
            key=say.CHANGE_GAIN_HIGH, values={"line": target.min_gain, "high": given["high"]}
        )
    if gate.name == "scale":
        names = ("start", "end", "difference")
        values = {name: given[name] for name in names} | {"margin": target.margin}
        return Reason(key=say.CHANGE_SCALE_HIGH, values=values)
    if gate.name == "health":
        return Reason(key=say.CHANGE_HEALTH, values={"point": given["point"], "n": given["n"]})
    start = gate.point.label if gate.point else ""
    return Reason(
        key=say.CHANGE_TREND, values={"axis": given["axis"], "start": start, "gain": given["gain"]}
    )


def _deciding_points(evidence: Evidence) -> list[Point]:
    """Return the points whose seeds carry the answer: base and largest of the target axis."""
    found = scale_effect(evidence)
    if found is not None:
        return [found[0], found[1]]
    return [evidence.base] if evidence.base else []


def _confidence(evidence: Evidence, answer: Answer, gates: Sequence[Gate]) -> Reason:
    """Apply the rule: low when seeds, points or answers lack; high with 5 seeds and clear bounds.

    Moderate is what 3 seeds on 3 points can give at best.
    """
    axis = evidence.plan.spec.target.axis
    points = evidence.along(axis)
    seeds = min((len(p.values) for p in _deciding_points(evidence)), default=0)
    pending = sum(c.state not in FINISHED for c in evidence.cells)
    if pending:
        return Reason(key=say.CONFIDENCE_LOW_PENDING, values={"num_pending": pending})
    if seeds < _ENOUGH_SEEDS:
        return Reason(key=say.CONFIDENCE_LOW_SEEDS, values={"seeds": seeds})
    values: dict[str, float | int | str] = {"axis": axis, "points": len(points)}
    if len(points) < _ENOUGH_POINTS:
        return Reason(key=say.CONFIDENCE_LOW_POINTS, values=values)
    if answer is Answer.NOT_ENOUGH:
        num_open = sum(gate.status is Status.OPEN for gate in gates)
        return Reason(key=say.CONFIDENCE_LOW_OPEN, values={"num_open": num_open})
    deciding = [g for g in gates if g.name in ("gain", "scale") and g.clearance is not None]
    least = min((len(p.values) for p in points), default=0)
    clear = all((g.clearance or 0.0) >= 0.5 for g in deciding)
    values["seeds"] = least
    if least >= _MANY_SEEDS and clear and deciding and not evidence.plan.trims:
        return Reason(key=say.CONFIDENCE_HIGH, values=values)
    return Reason(key=say.CONFIDENCE_MODERATE, values=values)
