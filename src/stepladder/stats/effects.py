"""Effects of few seeds: Student t with a pooled sd, Welch, Holm, and how many seeds a claim needs.

Pure functions of plain sequences; S is the number of seeds of one arm. No bootstrap over seeds:
over 3 seeds it covers 68 % instead of 95 % (scaling.md 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import scipy.stats  # pyright: ignore[reportMissingTypeStubs]

from stepladder.core.result import Interval

_scipy: Any = scipy.stats
POOLED = "student t, sd pooled over arms"
ONE_SEED = "one seed, sd pooled over the other arms"
PAIRED = "student t, paired by seed"
NOT_MEASURED = "not measured"
MAX_SEEDS = 200
"""More seeds than this is no answer to 'how many seeds?'."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation over seeds with its degrees of freedom."""

    sd: float
    df: int


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of [S] values, S >= 1."""
    return math.fsum(values) / len(values)


def pooled_spread(arms: Iterable[Sequence[float]], floor: float = 0.0) -> Spread | None:
    """Return the sd pooled over arms, df = sum(S_i - 1); None when no arm has two seeds.

    `floor` is the least sd, such as the rounding error of a score over few items.
    """
    squares: list[float] = []
    df = 0
    for arm in arms:
        if len(arm) < 2:
            continue
        centre = mean_of(arm)
        squares.extend((value - centre) ** 2 for value in arm)
        df += len(arm) - 1
    if not df:
        return None
    # Sorted, so that the order in which arms were collected cannot move the last bit.
    return Spread(max(math.sqrt(math.fsum(sorted(squares)) / df), floor), df)


@lru_cache(maxsize=4096)
def t_quantile(df: float, level: float = 0.95) -> float:
    """Return the two-sided Student t quantile."""
    return float(_scipy.t.ppf(0.5 + level / 2, df))


def mean_interval(values: Sequence[float], spread: Spread | None, level: float = 0.95) -> Interval:
    """Return the interval of an arm's mean, [S] values; bounds are None without a spread."""
    if not values:
        return not_measured(level)
    centre = mean_of(values)
    method = POOLED if len(values) > 1 else ONE_SEED
    if spread is None:
        return Interval(mean=centre, low=None, high=None, n=len(values), level=level, method=method)
    half = t_quantile(spread.df, level) * spread.sd / math.sqrt(len(values))
    return Interval(
        mean=centre,
        low=centre - half,
        high=centre + half,
        n=len(values),
        level=level,
        method=method,
    )


def not_measured(level: float = 0.95) -> Interval:
    """Return the interval of something that has no value: n is 0 and the mean means nothing."""
    return Interval(mean=0.0, low=None, high=None, n=0, level=level, method=NOT_MEASURED)


def difference_interval(
    first: Sequence[float],
    second: Sequence[float],
    spread_first: Spread | None,
    spread_second: Spread | None = None,
    level: float = 0.95,
) -> Interval:
    """Return the interval of mean(first) - mean(second), each [S] with S >= 1.

    One spread speaks for both arms unless a second is given; two different ones are joined by
    Welch and Satterthwaite. n is the smaller number of seeds.
    """
    other = spread_second or spread_first
    centre = mean_of(first) - mean_of(second)
    n = min(len(first), len(second))
    if spread_first is None or other is None:
        return Interval(mean=centre, low=None, high=None, n=n, level=level, method=POOLED)
    a = spread_first.sd**2 / len(first)
    b = other.sd**2 / len(second)
    if other == spread_first:
        df = float(spread_first.df)
    elif a + b > 0:
        df = (a + b) ** 2 / (a**2 / spread_first.df + b**2 / other.df)
    else:
        df = float(min(spread_first.df, other.df))
    half = t_quantile(df, level) * math.sqrt(a + b)
    return Interval(
        mean=centre, low=centre - half, high=centre + half, n=n, level=level, method=POOLED
    )


def paired_difference(
    first: Mapping[int, float], second: Mapping[int, float], level: float = 0.95
) -> Interval | None:
    """Return the interval of first - second over the seeds that both have; None without one.

    Worth it only where a seed moves both arms alike; df is the number of pairs less one.
    """
    shared = sorted(set(first) & set(second))
    if not shared:
        return None
    differences = [first[seed] - second[seed] for seed in shared]
    found = mean_interval(differences, pooled_spread([differences]), level)
    return Interval(
        mean=found.mean, low=found.low, high=found.high, n=found.n, level=level, method=PAIRED
    )


def welch_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the two-sided Welch p; None below two seeds on a side or without any spread."""
    if min(len(first), len(second)) < 2:
        return None
    a = _variance(first) / len(first)
    b = _variance(second) / len(second)
    # The mean's own rounding error is of this order; a spread below it is no spread.
    if a + b <= 1e-24:
        return None
    df = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    statistic = (mean_of(first) - mean_of(second)) / math.sqrt(a + b)
    return float(2 * _scipy.t.sf(abs(statistic), df))


def _variance(values: Sequence[float]) -> float:
    centre = mean_of(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def holm(p_values: Sequence[float | None], family_size: int | None = None) -> list[float | None]:
    """Return Holm-adjusted p values, in order; None stays None and counts in the family as 1.

    `family_size` is the number of stated claims when some of them could not be measured at all.
    """
    size = max(family_size or 0, len(p_values))
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (size - rank) * p))
        adjusted[i] = largest
    return adjusted


def minimum_detectable_difference(
    spread: Spread, num_first: int, num_second: int, level: float = 0.95, power: float = 0.8
) -> float:
    """Return the true difference that these seeds would show with probability `power`."""
    quantiles = t_quantile(spread.df, level) + t_quantile(spread.df, 2 * power - 1)
    return quantiles * spread.sd * math.sqrt(1 / num_first + 1 / num_second)


def seeds_needed(
    gap: float, sd: float, *, num_arms: int = 2, level: float = 0.95, power: float = 0.8
) -> int | None:
    """Return the least seeds per arm whose interval clears `gap` with probability `power`.

    `num_arms` is 2 for a difference and 1 for a mean; None when even MAX_SEEDS would not do.
    """
    if gap <= 0:
        return None
    for n in range(2, MAX_SEEDS + 1):
        df = num_arms * (n - 1)
        quantiles = t_quantile(df, level) + t_quantile(df, 2 * power - 1)
        if quantiles * sd * math.sqrt(num_arms / n) <= gap:
            return n
    return None
