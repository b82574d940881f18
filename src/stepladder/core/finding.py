"""Findings: what a monitor says of a run, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Severity(IntEnum):
    """How bad: note (true, no action) < warning (look first) < critical (stop or fix)."""

    NOTE = 1
    WARNING = 2
    CRITICAL = 3


class Outcome(StrEnum):
    """What a detector could say."""

    FIRED = "fired"
    CLEAR = "clear"
    CANNOT_SAY = "cannot_say"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number behind a finding."""

    metric: str
    value: float
    threshold: float | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One detector's verdict; texts are keyed so that reports can be in any language."""

    detector: str
    """Id of `detectors.md`, such as R1."""
    outcome: Outcome
    severity: Severity = Severity.NOTE
    onset: int | None = None
    """Step at which it began; None when it has no onset."""
    key: str = ""
    """Message key; `values` fill its places."""
    values: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[str, ...] = ()
    """In order, most likely first."""
    advice: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Metrics to log when the outcome is CANNOT_SAY."""
    explained_by: str | None = None
    """Detector id of the upstream finding."""
    run: str = ""
    """Which run; empty when it speaks of the study."""
