"""What detectors are made of: a series of a record, and the three things a detector can say.

A detector is a function of a RunRecord and nothing else, so a live monitor that is shown the
record so far says the same as a post-mortem of the record cut at that step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepladder.core.finding import Evidence, Finding, Outcome, Severity
from stepladder.core.record import RunRecord

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """The finite points of one metric; S = number of points."""

    name: str
    steps: Ints
    """[S]"""
    values: Floats
    """[S]"""

    def __len__(self) -> int:
        return len(self.values)

    def step(self, index: int) -> int:
        """Return the step of a point."""
        return int(self.steps[index])


def series(record: RunRecord, name: str) -> Series:
    """Return the finite points of a metric, training steps only; empty when it is not logged."""
    column: Any = record.metrics.get(name)
    steps = np.asarray(record.steps, dtype=np.int64)
    if column is None:
        return Series(name, steps[:0], np.zeros(0))
    values = np.asarray(column, dtype=np.float64)
    kept = np.isfinite(values) & (steps > 0)
    return Series(name, steps[kept], values[kept])


def first_series(record: RunRecord, *names: str) -> Series:
    """Return the first of several metrics that has points."""
    found = [series(record, name) for name in names]
    return next((one for one in found if len(one)), found[0])


@dataclass(frozen=True, slots=True)
class Detector:
    """One detector of `detectors.md`; it meets the Monitor seam."""

    id: str
    needs: tuple[str, ...]
    """Any one of these is enough when `any_of`, else all are needed."""
    min_points: int
    judge: Callable[[RunRecord], Finding]
    any_of: bool = False
    reads_non_finite: bool = False
    """Whether values that were not finite count as points: they are what it looks for."""

    def check(self, record: RunRecord) -> Finding:
        """Return fired, clear, or that it cannot say and what it lacks."""
        found = {name: self._num_points(record, name) for name in self.needs}
        missing = tuple(name for name, count in found.items() if count == 0)
        if len(missing) == len(self.needs) if self.any_of else missing:
            return cannot_say(self.id, needs=missing)
        num_points = max(found.values()) if self.any_of else min(found.values())
        if num_points < self.min_points:
            return cannot_say(self.id, num_points=num_points, min_points=self.min_points)
        return self.judge(record)

    def _num_points(self, record: RunRecord, name: str) -> int:
        odd = len(record.non_finite.get(name, ())) if self.reads_non_finite else 0
        return len(series(record, name)) + odd


def cannot_say(detector: str, needs: tuple[str, ...] = (), **values: float | int | str) -> Finding:
    """Return that a detector lacks metrics (`needs`) or points (`values`)."""
    return Finding(
        detector=detector,
        outcome=Outcome.CANNOT_SAY,
        key=detector,
        needs=needs,
        values=dict(values),
    )


def clear(detector: str, *evidence: Evidence) -> Finding:
    """Return that a detector looked and found nothing."""
    return Finding(detector=detector, outcome=Outcome.CLEAR, key=detector, evidence=evidence)


def fired(
    detector: str,
    severity: Severity,
    onset: int,
    evidence: tuple[Evidence, ...],
    *,
    causes: tuple[str, ...] = (),
    values: Mapping[str, float | int | str] | None = None,
) -> Finding:
    """Return a finding; texts are the report's, by the detector's id as key."""
    return Finding(
        detector=detector,
        outcome=Outcome.FIRED,
        severity=severity,
        onset=onset,
        key=detector,
        values=dict(values or {}),
        evidence=evidence,
        causes=causes,
    )
