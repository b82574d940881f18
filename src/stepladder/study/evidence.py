"""Evidence: cells of one setting and arm gathered over seeds, with the spread that speaks for them.

`analyse` makes them, everything after it reads them. A stopped or failed cell keeps its last score
and is counted; a pending one is counted and has no score. The base point stands on every axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stepladder.core.finding import Finding, Outcome, Severity
from stepladder.core.result import (
    CellResult,
    Curve,
    CurvePoint,
    Effect,
    Forecast,
    Interval,
    Trajectory,
)
from stepladder.stats.effects import (
    Spread,
    mean_interval,
    mean_of,
    not_measured,
    pooled_spread,
)
from stepladder.study.cell import Plan

METRIC = "eval/pass@1"
AXES = ("model", "samples_per_prompt", "steps")
BASE, ADJUSTED, UNADJUSTED, LONG = "base", "adjusted", "unadjusted", "long"
FINISHED = frozenset({"done", "stopped", "failed"})
BROKEN = frozenset({"stopped", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting of one arm; S = number of seeds with a score."""

    axis: str
    arm: str
    label: str
    ratio: float
    scores: Mapping[int, float]
    """[S] seed -> final score."""
    gains: Mapping[int, float]
    """Seed -> final score minus the same run's score before training."""
    cells: tuple[CellResult, ...]
    """Every cell of the point, with or without a score, in order of seed."""
    seconds: float | None
    """Mean cost of a run that ended well; None when none did."""
    num_stopped: int
    spread: Spread | None = None
    gain_spread: Spread | None = None

    def label_on(self, axis: str) -> str:
        """Return the point's value on another axis: the base point stands on all of them."""
        return _label(axis, self.cells)

    @property
    def num_pending(self) -> int:
        """Cells that have not ended."""
        return sum(cell.state not in FINISHED for cell in self.cells)

    @property
    def values(self) -> tuple[float, ...]:
        """[S] scores in order of seed."""
        return tuple(self.scores[seed] for seed in sorted(self.scores))

    @property
    def mean(self) -> float:
        """Mean score; S >= 1."""
        return mean_of(self.values)

    @property
    def score(self) -> Interval:
        """The mean score with its interval."""
        return self._interval(self.values, self.spread)

    @property
    def gain(self) -> Interval:
        """The mean gain over the base policy with its interval; n = 0 when not measured."""
        values = [self.gains[seed] for seed in sorted(self.gains)]
        return self._interval(values, self.gain_spread) if values else not_measured()

    def _interval(self, values: Sequence[float], spread: Spread | None) -> Interval:
        # A lone seed may borrow the other points' spread, but not while its siblings still run.
        lonely = len(values) < 2 and self.num_pending > 0
        return mean_interval(values, None if lonely else spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the verdict looks at."""

    plan: Plan
    cells: tuple[CellResult, ...]
    findings: tuple[Finding, ...]
    points: tuple[Point, ...]
    effects: tuple[Effect, ...] = ()
    forecasts: tuple[Forecast, ...] = field(default=())

    def arm_of(self, axis: str) -> str:
        """Return the recommended arm of an axis: adjusted where there is one."""
        return recommended_arm(self.points, axis)

    def along(self, axis: str, arm: str | None = None) -> tuple[Point, ...]:
        """Return the points of an axis by ratio; of the recommended arm unless one is named."""
        wanted = self.arm_of(axis) if arm is None else arm
        return tuple(p for p in self.points if p.axis == axis and p.arm == wanted)

    @property
    def base(self) -> Point | None:
        """The base point; None when no run of it has a score."""
        found = [p for axis in AXES for p in self.along(axis) if is_base(p)]
        return found[0] if found else None

    def recommended_cells(self) -> tuple[CellResult, ...]:
        """Return the cells of every recommended arm, each once, in plan order."""
        arms = {axis: self.arm_of(axis) for axis in AXES}
        return tuple(c for c in self.cells if _recommended(c, arms))

    def unscored(self) -> tuple[Point, ...]:
        """Return the recommended points of which no run has a score; they are on no curve."""
        arms = {axis: self.arm_of(axis) for axis in AXES}
        groups: dict[tuple[str, float, str], list[CellResult]] = {}
        for cell in self.cells:
            if _recommended(cell, arms):
                axis = axis_of(cell) or "model"
                place = (axis, cell.ratios.get(axis, 1.0), cell.axis_values.get(axis, ""))
                groups.setdefault(place, []).append(cell)
        found = [_point(key[0], group[0].arm, group) for key, group in sorted(groups.items())]
        return tuple(point for point in found if not point.scores)

    def critical(self, cell: CellResult) -> tuple[Finding, ...]:
        """Return the critical findings that fired on a cell."""
        names = {cell.cell, cell.run_folder, cell.run_folder.rstrip("/").rpartition("/")[2]} - {""}
        return tuple(f for f in self.findings if is_critical(f) and f.run in names)


def is_critical(finding: Finding) -> bool:
    """Return whether a finding fired and is critical."""
    return finding.outcome is Outcome.FIRED and finding.severity is Severity.CRITICAL


def is_base(point: Point) -> bool:
    """Return whether a point is the base point."""
    return math.isclose(point.ratio, 1.0) and all(cell.arm == BASE for cell in point.cells)


def axis_of(cell: CellResult) -> str | None:
    """Return the axis a cell varies; empty for the base point, None for a combination."""
    if cell.arm in (LONG, BASE):
        return "steps" if cell.arm == LONG else ""
    varied = [a for a in AXES if not math.isclose(cell.ratios.get(a, 1.0), 1.0)]
    if len(varied) > 1:
        return None
    # A model of the base's size has ratio 1 as well; nothing else can differ from the base.
    return varied[0] if varied else "model"


def recommended_arm(points: Iterable[Point], axis: str) -> str:
    """Return adjusted where the axis has it, else the arm it has."""
    arms = {p.arm for p in points if p.axis == axis}
    return next((arm for arm in (ADJUSTED, BASE, UNADJUSTED) if arm in arms), BASE)


def _recommended(cell: CellResult, arms: Mapping[str, str]) -> bool:
    axis = axis_of(cell)
    if axis is None:
        return False
    return axis in ("", "steps") or cell.arm == arms[axis]


def score_at(trajectory: Trajectory, step: float) -> float | None:
    """Return the score at a step, linear between evaluations; the last score after the end.

    None when there is no evaluation at or after step 0 to read from.
    """
    pairs = sorted(zip(trajectory.steps, trajectory.scores, strict=True))
    if not pairs:
        return None
    before = [pair for pair in pairs if pair[0] <= step]
    after = [pair for pair in pairs if pair[0] >= step]
    if not before or not after:
        return (before[-1] if before else after[0])[1]
    (low, low_score), (high, high_score) = before[-1], after[0]
    if high == low:
        return low_score
    return low_score + (high_score - low_score) * (step - low) / (high - low)


def study_points(plan: Plan, cells: Sequence[CellResult]) -> tuple[Point, ...]:
    """Return every point that has at least one score, by axis, arm and ratio, spreads filled in."""
    ordered = sorted(cells, key=lambda c: (c.seed, c.cell))
    base = [c for c in ordered if axis_of(c) == ""]
    points: list[Point] = []
    for axis in AXES[:2]:
        varied = [c for c in ordered if axis_of(c) == axis]
        for arm in sorted({c.arm for c in varied}) or ([ADJUSTED] if base else []):
            points.append(_point(axis, arm, base))
            members: dict[tuple[float, str], list[CellResult]] = {}
            for cell in varied:
                if cell.arm == arm:
                    place = (cell.ratios.get(axis, 1.0), cell.axis_values.get(axis, ""))
                    members.setdefault(place, []).append(cell)
            points.extend(_point(axis, arm, members[place]) for place in sorted(members))
    points.extend(_step_points(plan, base, [c for c in ordered if c.arm == LONG]))
    points = [p for p in points if p.scores]
    points.sort(key=lambda p: (AXES.index(p.axis), p.arm, p.ratio))
    return tuple(_with_spreads(points, plan))


def _point(axis: str, arm: str, cells: Sequence[CellResult]) -> Point:
    scored = [c for c in cells if c.state in FINISHED and c.final_score is not None]
    ended_well = [c.seconds for c in cells if c.state == "done"]
    return Point(
        axis=axis,
        arm=arm,
        label=_label(axis, cells),
        ratio=cells[0].ratios.get(axis, 1.0) if cells else 1.0,
        scores={c.seed: c.final_score for c in scored if c.final_score is not None},
        gains={
            c.seed: c.final_score - c.base_score
            for c in scored
            if c.final_score is not None and c.base_score is not None
        },
        cells=tuple(cells),
        seconds=mean_of(ended_well) if ended_well else None,
        num_stopped=sum(c.state in BROKEN for c in cells),
    )


def _label(axis: str, cells: Sequence[CellResult]) -> str:
    if not cells:
        return ""
    if axis == "steps":
        return f"{cells[0].ratios.get('steps', 1.0):g}"
    return cells[0].axis_values.get(axis, "")


def _step_points(
    plan: Plan, base: Sequence[CellResult], long: Sequence[CellResult]
) -> Iterable[Point]:
    """Yield the shares read from the base runs, the base point itself, and the longer run.

    The base point keeps its windowed final score, so that it is one number on every axis.
    """
    for share in sorted(plan.spec.axes.steps):
        if math.isclose(share, 1.0):
            continue
        yield _share_point(plan, base, share)
    if base:
        yield _point("steps", BASE, base)
    for ratio in sorted({c.ratios.get("steps", 1.0) for c in long}):
        yield _point("steps", BASE, [c for c in long if c.ratios.get("steps", 1.0) == ratio])


def num_steps(plan: Plan) -> int:
    """Return the steps of a base run; a budget may have trimmed them below the spec's."""
    planned = [cell.run.budget.steps for cell in plan.cells if cell.arm == BASE]
    return planned[0] if planned else plan.spec.base.budget.steps


def _share_point(plan: Plan, base: Sequence[CellResult], share: float) -> Point:
    step = share * num_steps(plan)
    scores: dict[int, float] = {}
    gains: dict[int, float] = {}
    stopped = 0
    for cell in base:
        value = score_at(cell.trajectory, step) if cell.state in FINISHED else None
        if value is None:
            continue
        scores[cell.seed] = value
        if cell.base_score is not None:
            gains[cell.seed] = value - cell.base_score
        stopped += cell.state in BROKEN and max(cell.trajectory.steps) < step
    ended_well = [c.seconds * share for c in base if c.state == "done"]
    return Point(
        axis="steps",
        arm=BASE,
        label=f"{share:g}",
        ratio=share,
        scores=scores,
        gains=gains,
        cells=tuple(base),
        seconds=mean_of(ended_well) if ended_well else None,
        num_stopped=stopped,
    )


def _pool(point: Point) -> str:
    """Name the pool whose spread speaks for a point.

    The control has its own: a mis-tuned arm that falls apart must not blur the recommended ones.
    Early reads of the base runs have their own: they repeat runs that are already counted.
    """
    if point.arm == UNADJUSTED and not is_base(point):
        return "control"
    return "early" if point.axis == "steps" and point.ratio < 1 else "final"


def _with_spreads(points: Sequence[Point], plan: Plan) -> list[Point]:
    if not any(p.arm == ADJUSTED and not is_base(p) for p in points):
        pools = dict.fromkeys(range(len(points)), "final")
        pools.update({i: "early" for i, p in enumerate(points) if _pool(p) == "early"})
    else:
        pools = {i: _pool(p) for i, p in enumerate(points)}
    rounding = _rounding(plan)
    spreads: dict[str, Spread | None] = {}
    gain_spreads: dict[str, Spread | None] = {}
    for name in ("final", "control", "early"):
        members = _distinct(p for i, p in enumerate(points) if pools[i] == name)
        spreads[name] = pooled_spread([p.values for p in members], rounding)
        gain_spreads[name] = pooled_spread(
            [[p.gains[s] for s in sorted(p.gains)] for p in members], rounding * math.sqrt(2)
        )
    return [
        replace(
            point,
            spread=spreads[pools[i]] or spreads["final"],
            gain_spread=gain_spreads[pools[i]] or gain_spreads["final"],
        )
        for i, point in enumerate(points)
    ]


def _distinct(points: Iterable[Point]) -> list[Point]:
    """Return the points without repeats of the base point, which stands on every axis."""
    kept: list[Point] = []
    has_base = False
    for point in points:
        if is_base(point) and has_base:
            continue
        has_base = has_base or is_base(point)
        kept.append(point)
    return kept


def _rounding(plan: Plan) -> float:
    """Return the sd of a score's rounding to whole items: no arm is steadier than that."""
    settings = plan.spec.base.eval
    num_samples = settings.num_prompts * settings.samples_per_prompt * settings.window
    return 1 / num_samples / math.sqrt(12)


def curves_of(points: Sequence[Point]) -> tuple[Curve, ...]:
    """Return one curve an axis and arm."""
    groups = sorted({(AXES.index(p.axis), p.arm) for p in points})
    return tuple(
        Curve(
            axis=AXES[axis],
            arm=arm,
            metric=METRIC,
            points=tuple(_curve_point(p) for p in points if p.axis == AXES[axis] and p.arm == arm),
        )
        for axis, arm in groups
    )


def _curve_point(point: Point) -> CurvePoint:
    return CurvePoint(
        ratio=point.ratio,
        label=point.label,
        score=point.score,
        gain=point.gain,
        seeds=tuple((seed, point.scores[seed]) for seed in sorted(point.scores)),
        cells=tuple(c.cell for c in point.cells),
        seconds=point.seconds,
        num_stopped=point.num_stopped,
    )
