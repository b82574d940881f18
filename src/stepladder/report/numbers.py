"""How numbers are written for people: the one place, in every language alike."""

from __future__ import annotations

import math
from string import hexdigits

from stepladder.core.result import Interval
from stepladder.report.i18n import NO_BREAK, translate

MINUTE, HOUR = 60, 3600
HASH_DIGITS = 12


def number(value: float | None, lang: str, *, signed: bool = False, digits: int = 3) -> str:
    """Return a score or a gain; None is said in words."""
    if value is None or not math.isfinite(value):
        return translate("not_measured", lang)
    # Adding 0.0 turns the -0.0 of a rounded small loss into 0.0.
    rounded = round(value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if signed else f"{rounded:.{digits}f}"


def interval_text(interval: Interval | None, lang: str, *, signed: bool = False) -> str:
    """Return `mean [low, high]`, or the mean and why there is no interval."""
    if interval is None:
        return translate("not_measured", lang)
    if interval.n == 0:
        return translate("not_measured", lang)
    return (
        f"{mean_text(interval, lang, signed=signed)} {bounds_text(interval, lang, signed=signed)}"
    )


def mean_text(interval: Interval, lang: str, *, signed: bool = False) -> str:
    """Return the mean; of nothing (n = 0) there is none."""
    return number(interval.mean if interval.n else None, lang, signed=signed)


def bounds_text(interval: Interval, lang: str, *, signed: bool = False) -> str:
    """Return `[low, high]`, or why there is none."""
    if interval.low is None or interval.high is None:
        return f"({translate('no_interval', lang)})"
    low, high = (number(bound, lang, signed=signed) for bound in (interval.low, interval.high))
    return f"[{low}, {high}]"


def probability(value: float | None, lang: str) -> str:
    """Return a p-value or a probability."""
    if value is None:
        return translate("none_given", lang)
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def share(value: float | None, lang: str) -> str:
    """Return a share in percent."""
    return (
        translate("none_given", lang)
        if value is None
        else f"{value:.0%}".replace("%", f"{NO_BREAK}%")
    )


def duration(seconds: float | None, lang: str) -> str:
    """Return seconds as the largest fitting unit."""
    if seconds is None:
        return translate("not_measured", lang)
    tenths = round(seconds, 1)
    if tenths < MINUTE:
        return f"{tenths:.1f} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    minutes = round(seconds / MINUTE)
    return f"{minutes // MINUTE} h {minutes % MINUTE:02d} min"


def duration_tick(seconds: float) -> str:
    """Return a round number of seconds for a chart's axis."""
    for size, unit in ((HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def short_label(label: str) -> str:
    """Return a point's label, of a folder only its name."""
    return label.rstrip("/").rpartition("/")[2] or label


def cell_name(cell: str) -> str:
    """Return a cell's id without its content hash: unique within a plan, and it fits a table."""
    stem, _, digits = cell.rpartition("-")
    return stem if len(digits) == HASH_DIGITS and not set(digits) - set(hexdigits) else cell


def count(value: float) -> str:
    """Return a count with thousands separated by a thin gap."""
    return f"{int(value):,}".replace(",", NO_BREAK)


def setting(value: float) -> str:
    """Return a setting as it would be typed."""
    return f"{value:.6g}"


def metric_value(value: float) -> str:
    """Return a training metric to four digits."""
    return f"{value:.4g}"
