"""Noise first: window statistics that every detector shares (detectors.md D0). S points, w window.

Windows end at their index: the statistic at a step uses that step and earlier ones only.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stepladder.monitors.base import Floats

MIN_WINDOW = 5
RELATIVE_ERROR = 0.1
"""A window is long enough when its mean is known to this share of the level."""


def noise_sigma(values: Floats) -> float:
    """Return the noise of one point: sd of successive differences over sqrt(2).

    Not the median absolute deviation: with few prompts a step rewards are quantised and it is 0.
    """
    if len(values) < 3:
        return 0.0
    return float(np.std(np.diff(values), ddof=1) / np.sqrt(2.0))


def adaptive_window(values: Floats) -> int:
    """Return the least w with sigma / sqrt(w) <= 10 % of the level, 5 <= w <= S / 4."""
    longest = max(MIN_WINDOW, len(values) // 4)
    level = float(np.max(np.abs(window_means(values, min(MIN_WINDOW, len(values))))))
    if level == 0.0:
        return MIN_WINDOW
    wanted = (noise_sigma(values) / (RELATIVE_ERROR * level)) ** 2
    return int(min(longest, max(MIN_WINDOW, np.ceil(wanted))))


def window_means(values: Floats, window: int) -> Floats:
    """Return the means [S - w + 1] of every window."""
    return sliding_window_view(values, window).mean(axis=1)


def rolling_median(values: Floats, window: int) -> Floats:
    """Return the medians [S - w + 1] of every window; isolated points do not move it."""
    return np.median(sliding_window_view(values, window), axis=1)


def expanding_median(values: Floats) -> Floats:
    """Return the median [S] of every prefix."""
    ordered: list[float] = []
    medians = np.empty(len(values))
    for i, value in enumerate(values.tolist()):
        insort(ordered, value)
        medians[i] = (ordered[i // 2] + ordered[(i + 1) // 2]) / 2.0
    return medians


def early_median(values: Floats) -> float:
    """Return the median of the first tenth, at least five points and at most twenty."""
    return float(np.median(values[: min(20, max(5, len(values) // 10))]))


def first_run(holds: np.ndarray[tuple[int], np.dtype[np.bool_]], length: int) -> int | None:
    """Return where the first `length` consecutive True begin; None when there are none."""
    if length > len(holds):
        return None
    whole = sliding_window_view(holds, length).all(axis=1)
    return int(np.argmax(whole)) if whole.any() else None


def persistence(window: int) -> int:
    """Return how many consecutive windows must agree before a detector speaks."""
    return max(3, window // 2)


def change_point(values: Floats) -> int:
    """Return the index at which the second of two best-fitting levels begins."""
    total = np.cumsum(values)
    count = len(values)
    splits = np.arange(1, count)
    left, right = total[:-1], total[-1] - total[:-1]
    explained = left**2 / splits + right**2 / (count - splits)
    return int(splits[int(np.argmax(explained))])


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of a level beyond its noise."""

    index: int
    """Point at which the lower level begins."""
    best: float
    """Best window mean before it."""
    low: float
    """Window mean at the point of detection."""
    score: float
    """Largest (best - mean) / (sigma sqrt(2 / w)) after it."""


def find_fall(values: Floats, share: float, min_score: float) -> Fall | None:
    """Return the first persistent fall below `share` of the best window mean, or None.

    The mean must also lie `min_score` times sigma sqrt(2/w) below the best.
    """
    window = adaptive_window(values)
    if len(values) < 2 * window:
        return None
    means = window_means(values, window)
    best = np.maximum.accumulate(means)
    unit = max(noise_sigma(values) * np.sqrt(2.0 / window), 1e-12)
    scores = (best - means) / unit
    fallen = (best > 0) & (means < share * best) & (scores > min_score)
    at = first_run(fallen, persistence(window))
    if at is None:
        return None
    low = int(np.flatnonzero(means[: at + 1] == best[at])[-1])
    half = low + int(np.argmax(means[low:] < 0.5 * best[at]))  # first window that crosses half
    start = max(0, half - window)
    index = start + change_point(values[start : half + 2 * window])
    return Fall(index, float(best[at]), float(means[at]), float(np.max(scores[at:])))


def drop_after(values: Floats, index: int) -> float:
    """Return how many noise units the mean drops within two windows after a point; 0 at least."""
    window = adaptive_window(values)
    before = values[max(0, index - window) : index]
    after = values[index : index + 2 * window]
    if len(before) < 3 or len(after) < window:
        return 0.0
    unit = max(noise_sigma(values) * np.sqrt(2.0 / window), 1e-12)
    lowest = float(np.min(window_means(after, window)))
    return max(0.0, (float(np.mean(before)) - lowest) / unit)
