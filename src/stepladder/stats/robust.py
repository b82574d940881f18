"""Robust numbers of one noisy series: centre, noise and trend that outliers cannot move.

Pure functions; K is the length of the series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import median

MAD_TO_SD = 1.4826
"""Median absolute deviation -> standard deviation of a normal."""


def mad_sd(values: Sequence[float]) -> float | None:
    """Return the sd estimated from the median absolute deviation of [K]; None below two values."""
    if len(values) < 2:
        return None
    centre = median(values)
    return MAD_TO_SD * median(abs(value - centre) for value in values)


def noise_sd(values: Sequence[float]) -> float | None:
    """Return the sd of step-to-step noise, trend removed by differencing; None below three."""
    if len(values) < 3:
        return None
    steps = [later - earlier for earlier, later in pairwise(values)]
    spread = mad_sd(steps)
    return None if spread is None else spread / math.sqrt(2)


def theil_sen(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return the median slope over all pairs of points, both [K]; None without distinct x."""
    points = sorted(zip(x, y, strict=True))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0]]
    return median(slopes) if slopes else None


def rolling_median(values: Sequence[float], width: int) -> list[float]:
    """Return the median of the last `width` values at each place, [K]; shorter at the start."""
    assert width >= 1, f"width {width}"
    return [median(values[max(0, i + 1 - width) : i + 1]) for i in range(len(values))]
