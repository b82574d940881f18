"""Curves: straight lines in ln(compute) for a score and for the log loss, with honest refusal.

Pure functions; K is the number of points. A fit needs three distinct compute values and answers up
to 4x of the measured range (scaling.md 5.6). The further families come with issue 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepladder.core.result import Interval
from stepladder.stats.effects import mean_of, t_quantile

TOO_FEW_POINTS = "too_few_points"
BEYOND_RANGE = "beyond_range"
MIN_POINTS = 3
MAX_EXTRAPOLATION = 4.0
"""Multiple of the measured range beyond which no forecast is given."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """Least squares y = intercept + slope * ln(x)."""

    intercept: float
    slope: float
    sd: float
    """Residual standard deviation, lack of fit included."""
    df: int
    num_points: int
    num_distinct: int
    mean_ln: float
    """Mean of ln(x)."""
    sum_squares_ln: float
    """Sum of squares of ln(x) about its mean."""
    smallest: float
    largest: float
    """Measured range of x."""
    leave_last_out_miss: float
    """Predicted minus measured mean at the largest x, fitted without it."""

    def at(self, x: float) -> float:
        """Return the line's value."""
        return self.intercept + self.slope * math.log(x)

    @property
    def leave_last_out_error(self) -> float:
        """Magnitude of the miss at the largest x."""
        return abs(self.leave_last_out_miss)

    @property
    def slope_error(self) -> float:
        """Standard error of the slope."""
        return self.sd / math.sqrt(self.sum_squares_ln)


def fit_log_linear(x: Sequence[float], y: Sequence[float]) -> LineFit | Refusal:
    """Fit y on ln(x), both [K]; several seeds at one x are several points."""
    assert len(x) == len(y), f"{len(x)} x but {len(y)} y"
    # Sorted, so that the order of the points cannot move the last bit.
    pairs = sorted(zip(map(float, x), map(float, y), strict=True))
    distinct = sorted({value for value, _ in pairs})
    if len(distinct) < MIN_POINTS:
        return Refusal(TOO_FEW_POINTS)
    intercept, slope, mean_ln, squares = _line(pairs)
    residuals = [value - intercept - slope * math.log(place) for place, value in pairs]
    df = len(pairs) - 2
    last = distinct[-1]
    earlier = [pair for pair in pairs if pair[0] < last]
    held_a, held_b, _, _ = _line(earlier)
    measured = mean_of([value for place, value in pairs if place == last])
    return LineFit(
        intercept=intercept,
        slope=slope,
        sd=math.sqrt(math.fsum(r * r for r in residuals) / df),
        df=df,
        num_points=len(pairs),
        num_distinct=len(distinct),
        mean_ln=mean_ln,
        sum_squares_ln=squares,
        smallest=distinct[0],
        largest=last,
        leave_last_out_miss=held_a + held_b * math.log(last) - measured,
    )


def _line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    logs = [math.log(place) for place, _ in pairs]
    mean_ln, mean_y = mean_of(logs), mean_of([value for _, value in pairs])
    squares = math.fsum((ln - mean_ln) ** 2 for ln in logs)
    products = math.fsum(
        (ln - mean_ln) * (value - mean_y) for ln, (_, value) in zip(logs, pairs, strict=True)
    )
    slope = products / squares
    return mean_y - slope * mean_ln, slope, mean_ln, squares


def predict(fit: LineFit, x: float, level: float = 0.95) -> Interval | Refusal:
    """Return the interval of the mean of a new point at `x` (Student t)."""
    if _beyond(fit, x):
        return Refusal(BEYOND_RANGE)
    distance = (math.log(x) - fit.mean_ln) ** 2 / fit.sum_squares_ln
    half = t_quantile(fit.df, level) * fit.sd * math.sqrt(1 / fit.num_points + distance)
    return _interval(fit, fit.at(x), half, level)


def gain_between(fit: LineFit, start: float, end: float, level: float = 0.95) -> Interval | Refusal:
    """Return the interval of the line's change from `start` to `end`."""
    if _beyond(fit, start) or _beyond(fit, end):
        return Refusal(BEYOND_RANGE)
    span = math.log(end / start)
    half = t_quantile(fit.df, level) * fit.slope_error * abs(span)
    return _interval(fit, fit.slope * span, half, level)


def _beyond(fit: LineFit, x: float) -> bool:
    # A hair of slack: 4 x 0.3 is not exactly 1.2.
    slack = MAX_EXTRAPOLATION * (1 + 1e-9)
    return x > fit.largest * slack or x < fit.smallest / slack


def _interval(fit: LineFit, centre: float, half: float, level: float) -> Interval:
    return Interval(
        mean=centre,
        low=centre - half,
        high=centre + half,
        n=fit.num_points,
        level=level,
        method="student t, least squares in ln(compute)",
    )


def fit_log_linear_loss(
    x: Sequence[float], score: Sequence[float], floor: float = 1e-3
) -> LineFit | Refusal:
    """Fit ln(1 - score) on ln(x), both [K]; a loss below `floor` counts as `floor`."""
    return fit_log_linear(x, [math.log(max(1 - value, floor)) for value in score])


def predict_score(fit: LineFit, x: float) -> float | Refusal:
    """Return the score at `x` of a log-linear loss fit."""
    if _beyond(fit, x):
        return Refusal(BEYOND_RANGE)
    return 1 - math.exp(fit.at(x))
