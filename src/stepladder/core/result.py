"""Results: from runs to a decision, each number with its n and its interval.

Flow: CellResult -> Curve, Effect, Forecast -> Verdict -> StudyResult -> the report layer.
Texts are keys with values, so that a reader can be answered in any language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stepladder.core.finding import Finding


class Answer(StrEnum):
    """The one answer."""

    GO = "GO"
    NO_GO = "NO-GO"
    NOT_ENOUGH = "NOT ENOUGH EVIDENCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its interval."""

    mean: float
    low: float | None
    """None when n is too small for an interval."""
    high: float | None
    n: int
    """Number of seeds (or pairs of seeds) behind it."""
    level: float = 0.95
    method: str = "student t, sd pooled over arms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One sentence by key; `values` fill its places; `sign` is +1 for, -1 against, 0 open."""

    key: str
    values: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    sign: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One run's held-out score over training; K = number of evaluations."""

    steps: tuple[int, ...]
    """[K]"""
    scores: tuple[float, ...]
    """[K] eval/pass@1"""
    samples: tuple[int, ...]
    """[K] training rollouts drawn before the evaluation"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One finished (or stopped) cell."""

    cell: str
    axis_values: Mapping[str, str]
    """Axis name -> value as written in the plan, such as model -> ladder-x2."""
    ratios: Mapping[str, float]
    """Axis name -> multiple of the base point."""
    arm: str
    """base, adjusted, unadjusted or long."""
    seed: int
    state: str
    """done, stopped, failed or pending (JobState values)."""
    reason: str
    base_score: float | None
    """Held-out pass@1 before training; None when never measured."""
    final_score: float | None
    """Mean of the last evaluations (window stated in the plan); None when nothing was measured."""
    trajectory: Trajectory
    seconds: float
    """Wall-clock of the cell's process steps, evaluations included."""
    num_tokens: int
    num_parameters: int
    run_folder: str
    """Relative to the study folder."""
    metrics: Mapping[str, tuple[tuple[int, float], ...]] = field(
        default_factory=dict[str, tuple[tuple[int, float], ...]]
    )
    """A few training series for the report: name -> ((step, value), ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One point of a response curve."""

    ratio: float
    label: str
    score: Interval
    gain: Interval
    """Score minus the base policy's score."""
    seeds: tuple[tuple[int, float], ...]
    """(seed, score) of every run behind the point."""
    cells: tuple[str, ...]
    seconds: float | None
    """Mean cost of one run."""
    num_stopped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Score along one axis for one arm."""

    axis: str
    arm: str
    metric: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A difference between two points of a study."""

    key: str
    """Such as model:x2-x1:adjusted or model:x4:adjusted-unadjusted."""
    difference: Interval
    p_value: float | None
    """Welch; None below two seeds on either side."""
    p_holm: float | None = None
    """Adjusted over the study's stated contrasts; None when the effect is exploratory."""
    stated: bool = True
    """Whether the contrast was named before the runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A curve family fitted to points."""

    family: str
    axis: str
    parameters: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    leave_last_out_error: float | None = None
    num_points: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one more doubling along an axis is forecast to gain."""

    axis: str
    from_label: str
    to_label: str
    gain: Interval
    added_cost_s: float | None
    """Added seconds a run at this rehearsal's speed."""
    gain_at_equal_cost: Interval | None
    """Gain when every axis gets the same added cost; None when the cost is not known."""
    probability_best: float | None
    refused: str = ""
    """Reason key when no honest forecast exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The one answer, three reasons, and where the next unit of compute should go."""

    answer: Answer
    reasons: tuple[Reason, ...]
    next_spend: Reason
    what_would_change_it: Reason
    confidence: Reason
    caveats: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One leaf that a recipe rule moved (or kept, in the control)."""

    cell_kind: str
    """Axis point and arm, such as `model=ladder-x2 adjusted`."""
    path: str
    before: float
    after: float
    rule: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """Everything a report says about one study."""

    study: str
    plan_id: str
    created: str
    """ISO time at which the plan was written; taken from the plan, so reports are reproducible."""
    metric: str
    cells: tuple[CellResult, ...]
    curves: tuple[Curve, ...]
    effects: tuple[Effect, ...]
    fits: tuple[Fit, ...]
    forecasts: tuple[Forecast, ...]
    findings: tuple[Finding, ...]
    settings: tuple[SettingChange, ...]
    verdict: Verdict
    facts: Mapping[str, str | float | int] = field(default_factory=dict[str, str | float | int])
    """Versions, host, budget, wall seconds, cores: what a reader needs to place the numbers."""
