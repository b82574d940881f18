"""Allocation: what one more doubling of each axis would gain, cost and gain at equal added cost.

Model and samples read a line in ln(ratio) over all seeds; steps reads each run's own curve of the
log loss. The figures behind P(best) are those of the Forecasts, so anyone can recompute it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm  # pyright: ignore[reportMissingTypeStubs,reportUnknownVariableType]

from stepladder.core.result import CellResult, Fit, Forecast, Interval
from stepladder.core.rng import seed_for
from stepladder.stats.curves import (
    LineFit,
    Refusal,
    fit_log_linear,
    fit_log_linear_loss,
    gain_between,
    predict_score,
)
from stepladder.stats.effects import (
    mean_interval,
    mean_of,
    not_measured,
    pooled_spread,
    t_quantile,
)
from stepladder.study.caveat_texts import REFUSED_POINTS, REFUSED_RANGE, REFUSED_SEEDS
from stepladder.study.cell import Plan
from stepladder.study.evidence import AXES, BASE, FINISHED, LONG, Evidence, Point, num_steps

DEFAULT_STEP_ERROR = 0.014
"""MAE of the log-linear loss family from half of a curve on (scaling.md 5.3); the lab's own later."""
NUM_DRAWS = 20_000
Z95 = 1.959964
SURE = 0.8
WORST_REGRET = -0.005
"""scaling.md 5.6: recommend when P(best) >= 0.8 and the lower bound of (best - second) is above."""
EXTRAPOLATED = "student t, forecast error of the family added"


def forecasts_of(evidence: Evidence, growth: float = 2.0) -> tuple[Forecast, ...]:
    """Return one forecast an axis, refused ones with their reason, P(best) filled in."""
    found = [_forecast(evidence, axis, growth) for axis in AXES if evidence.along(axis)]
    return _with_probabilities(_at_equal_cost(found))


def _forecast(evidence: Evidence, axis: str, growth: float) -> Forecast:
    points = evidence.along(axis)
    last = points[-1]
    end = last.ratio * growth
    added = _added_cost(points, end)
    gain = (
        _steps_gain(evidence.plan, evidence.cells, last.ratio, end)
        if axis == "steps"
        else line_gain(points, growth)
    )
    refused = gain.reason if isinstance(gain, Refusal) else ""
    return Forecast(
        axis=axis,
        from_label=last.label,
        to_label=_next_label(last, growth),
        gain=not_measured() if isinstance(gain, Refusal) else _below_ceiling(gain, last),
        added_cost_s=added,
        gain_at_equal_cost=None,
        probability_best=None,
        refused=refused,
    )


def _next_label(last: Point, growth: float) -> str:
    try:
        return f"{float(last.label) * growth:g}"
    except ValueError:
        return f"{growth:g}x {last.label}"


def _added_cost(points: Sequence[Point], end: float) -> float | None:
    """Return the added seconds of one run at `end`; cost is taken as linear in the ratio."""
    known = [(p.ratio, p.seconds) for p in points if p.seconds is not None]
    if not known or points[-1].seconds is None:
        return None
    last_ratio, last_seconds = known[-1]
    slope = last_seconds / last_ratio
    if len(known) > 1:
        ratios, seconds = [r for r, _ in known], [s for _, s in known]
        centre_r, centre_s = mean_of(ratios), mean_of(seconds)
        squares = math.fsum((r - centre_r) ** 2 for r in ratios)
        if squares > 0:
            slope = math.fsum((r - centre_r) * (s - centre_s) for r, s in known) / squares
    added = slope * (end - last_ratio)
    return added if added > 0 else None


def line_of(points: Sequence[Point]) -> LineFit | Refusal:
    """Return the line of an axis' scores in ln(ratio), every seed a point."""
    ratios = [p.ratio for p in points for _ in p.values]
    return fit_log_linear(ratios, [value for p in points for value in p.values])


def line_gain(
    points: Sequence[Point], growth: float, start: float | None = None
) -> Interval | Refusal:
    """Return the gain up to `growth` times the last point, from there or from ratio `start`."""
    fit = line_of(points)
    if isinstance(fit, Refusal):
        return Refusal(REFUSED_POINTS)
    gain = gain_between(fit, fit.largest if start is None else start, fit.largest * growth)
    if isinstance(gain, Refusal):
        return Refusal(REFUSED_RANGE)
    return _widened(gain, fit.leave_last_out_error)


def _widened(gain: Interval, error: float) -> Interval:
    """Return the interval with the family's own forecast error added in quadrature."""
    assert gain.low is not None and gain.high is not None
    half = math.hypot((gain.high - gain.low) / 2, error)
    return replace(gain, low=gain.mean - half, high=gain.mean + half, method=EXTRAPOLATED)


def _below_ceiling(gain: Interval, last: Point) -> Interval:
    """Return the gain with no part of it above a score of 1."""
    room = max(1 - last.mean, 0.0)
    if gain.high is None or gain.high <= room:
        return gain
    low = None if gain.low is None else min(gain.low, room)
    return replace(gain, mean=min(gain.mean, room), low=low, high=room)


def step_fits(plan: Plan, cells: Sequence[CellResult]) -> dict[int, LineFit]:
    """Return seed -> log-linear loss of its longest run, warm-up left out.

    A base run and a longer run of one seed are one path: only the longer speaks.
    """
    longest: dict[int, CellResult] = {}
    for cell in sorted(cells, key=lambda c: c.cell):
        if cell.arm not in (BASE, LONG) or cell.state not in FINISHED:
            continue
        known = longest.get(cell.seed)
        if known is None or max(cell.trajectory.steps, default=0) > max(
            known.trajectory.steps, default=0
        ):
            longest[cell.seed] = cell
    run = plan.spec.base
    skipped = max(run.optim.warmup_steps, 0.03 * num_steps(plan))
    floor = 0.5 / (run.eval.num_prompts * run.eval.samples_per_prompt)
    fits: dict[int, LineFit] = {}
    for seed, cell in sorted(longest.items()):
        pairs = zip(cell.trajectory.steps, cell.trajectory.scores, strict=True)
        kept = [(step, score) for step, score in pairs if step > skipped]
        fit = fit_log_linear_loss([step for step, _ in kept], [s for _, s in kept], floor)
        if isinstance(fit, LineFit):
            fits[seed] = fit
    return fits


def _steps_gain(
    plan: Plan, cells: Sequence[CellResult], start: float, end: float
) -> Interval | Refusal:
    """Return the gain of training on: each run extended by its own curve, t over runs."""
    fits = step_fits(plan, cells)
    gains: list[float] = []
    for _, fit in sorted(fits.items()):
        before = predict_score(fit, start * num_steps(plan))
        after = predict_score(fit, end * num_steps(plan))
        if isinstance(before, float) and isinstance(after, float):
            gains.append(after - before)
    if len(gains) < 2:
        return Refusal(REFUSED_RANGE if len(fits) > 1 else REFUSED_SEEDS)
    interval = mean_interval(gains, pooled_spread([gains]))
    # What the runs miss together is the family's fault and does not average out over seeds; what
    # each misses alone is evaluation noise and does.
    shared = abs(mean_of([score_miss(fits[seed]) for seed in sorted(fits)]))
    return _widened(interval, Z95 * max(shared, DEFAULT_STEP_ERROR))


def score_miss(fit: LineFit) -> float:
    """Return a log-loss fit's miss at its last point as a score, measured minus predicted."""
    return math.exp(fit.at(fit.largest)) * fit.leave_last_out_miss


def fits_of(evidence: Evidence) -> tuple[Fit, ...]:
    """Return the fitted family of each axis that has one."""
    found: list[Fit] = []
    for axis in AXES[:2]:
        fit = line_of(evidence.along(axis))
        if isinstance(fit, LineFit):
            found.append(_line_report(axis, fit))
    steps = step_fits(evidence.plan, evidence.cells)
    if steps:
        slopes = [steps[seed].slope for seed in sorted(steps)]
        missed = [abs(score_miss(fit)) for _, fit in sorted(steps.items())]
        found.append(
            Fit(
                family="log_linear_loss",
                axis="steps",
                parameters={
                    "slope": mean_of(slopes),
                    "intercept": mean_of([steps[seed].intercept for seed in sorted(steps)]),
                },
                intervals={"slope": mean_interval(slopes, pooled_spread([slopes]))},
                leave_last_out_error=mean_of(missed),
                num_points=sum(fit.num_points for fit in steps.values()),
            )
        )
    return tuple(found)


def _line_report(axis: str, fit: LineFit) -> Fit:
    half = t_quantile(fit.df) * fit.slope_error * math.log(2)
    doubling = fit.slope * math.log(2)
    return Fit(
        family="log_linear",
        axis=axis,
        parameters={"intercept": fit.intercept, "gain_per_doubling": doubling},
        intervals={
            "gain_per_doubling": Interval(
                mean=doubling,
                low=doubling - half,
                high=doubling + half,
                n=fit.num_points,
                method="student t, least squares in ln(compute)",
            )
        },
        leave_last_out_error=fit.leave_last_out_error,
        num_points=fit.num_points,
    )


def _at_equal_cost(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """Give every axis the added cost of the cheapest doubling.

    With cost linear and gain log-linear in the ratio, an axis whose doubling adds `a` seconds
    gains log2(1 + D/a) of a doubling's gain for D seconds; D is the least, so nothing is
    extrapolated beyond the doubling.
    """
    costs = [f.added_cost_s for f in forecasts if not f.refused and f.added_cost_s is not None]
    return [
        f
        if f.refused or f.added_cost_s is None
        else replace(
            f, gain_at_equal_cost=_scaled(f.gain, math.log2(1 + min(costs) / f.added_cost_s))
        )
        for f in forecasts
    ]


def _scaled(interval: Interval, factor: float) -> Interval:
    assert interval.low is not None and interval.high is not None
    return replace(
        interval,
        mean=interval.mean * factor,
        low=interval.low * factor,
        high=interval.high * factor,
    )


def error_of(interval: Interval) -> float:
    """Return the standard error that a 95 % interval stands for, read as a normal."""
    assert interval.low is not None and interval.high is not None
    return (interval.high - interval.low) / 2 / Z95


def _comparable(forecasts: Sequence[Forecast]) -> list[tuple[int, Interval]]:
    return [
        (i, f.gain_at_equal_cost)
        for i, f in enumerate(forecasts)
        if f.gain_at_equal_cost is not None
    ]


def _with_probabilities(forecasts: Sequence[Forecast]) -> tuple[Forecast, ...]:
    """Fill in P(best) by a fixed-seed draw; None when fewer than two axes can be compared."""
    known = _comparable(forecasts)
    if len(known) < 2:
        return tuple(forecasts)
    generator = np.random.default_rng(seed_for("allocation"))
    noise = generator.standard_normal((NUM_DRAWS, len(known)))
    draws = noise * [error_of(gain) for _, gain in known] + [gain.mean for _, gain in known]
    winners = np.bincount(np.argmax(draws, axis=1), minlength=len(known)) / NUM_DRAWS
    shares = {i: float(winners[k]) for k, (i, _) in enumerate(known)}
    return tuple(replace(f, probability_best=shares.get(i)) for i, f in enumerate(forecasts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best axis against the next one at equal added cost."""

    best: Forecast
    second: Forecast
    difference: float
    error: float
    """Standard error of the difference."""

    @property
    def decided(self) -> bool:
        """Whether the best may be recommended (scaling.md 5.6)."""
        return (self.best.probability_best or 0) >= SURE and self.lower > WORST_REGRET

    @property
    def lower(self) -> float:
        """One-sided 95 % lower bound of best minus second."""
        return self.difference - 1.644854 * self.error

    @property
    def error_needed(self) -> float:
        """Standard error at which the recommendation could be made, all else equal."""
        quantile = float(norm.ppf(SURE))  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
        return min(self.difference / quantile, (self.difference - WORST_REGRET) / 1.644854)


def choice_of(forecasts: Sequence[Forecast]) -> Choice | None:
    """Return the two leading axes; None when fewer than two can be compared."""
    known = sorted(
        _comparable(forecasts),
        key=lambda pair: (-(forecasts[pair[0]].probability_best or 0), pair[0]),
    )
    if len(known) < 2:
        return None
    (i, best), (j, second) = known[:2]
    return Choice(
        best=forecasts[i],
        second=forecasts[j],
        difference=best.mean - second.mean,
        error=math.hypot(error_of(best), error_of(second)),
    )
