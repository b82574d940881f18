"""Plan and Cell: the fixed list of runs of a study. Made by `plan`, read by queue and analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepladder.core.result import SettingChange
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Measured cost of one kind of run on this machine."""

    step_s: float
    """Seconds of one training step."""
    eval_s: float
    """Seconds of one evaluation."""
    start_s: float
    """Seconds from launch to the first step."""
    num_parameters: int
    bytes_per_checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of the plan."""

    id: str
    """`<axis point>-<arm>-s<seed>-<content hash>`; names the run folder."""
    axis_values: Mapping[str, str]
    """model, samples_per_prompt, steps -> value as text."""
    ratios: Mapping[str, float]
    """The same axes -> multiple of the base point."""
    arm: str
    """base, adjusted, unadjusted or long."""
    seed: int
    run: RunSpec
    changes: tuple[SettingChange, ...]
    """What the recipe rules moved; the control lists what it kept (before == after)."""
    provenance: Mapping[str, str]
    """Leaf -> default, file name, --set, `axis model`, `rule reports.lr`, `budget`."""
    estimated_s: float | None
    """None before the cost was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is decided before the first cell starts."""

    plan_id: str
    """Content hash of cells and study spec."""
    format_version: int
    created: str
    """ISO time, UTC."""
    spec: StudySpec
    cells: tuple[Cell, ...]
    costs: Mapping[str, StepCost]
    """Kind of run -> measured cost; empty when not measured."""
    budget_s: float | None
    trims: tuple[str, ...]
    """What `--budget` took away, in words for the verdict."""
    stated_contrasts: tuple[str, ...]
    """Effect keys named before the runs; Holm runs over these."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Versions and host at plan time."""
