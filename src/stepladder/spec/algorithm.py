"""Algorithm settings: a union tagged by `type`. Behaviour stands in `engine/algo`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stepladder.spec.base import Spec


class GrpoSpec(Spec):
    """Group-relative policy optimisation with the clipped objective."""

    type: Literal["grpo"] = "grpo"
    """Which algorithm computes advantages and the objective."""
    scale: Literal["std", "none"] = "std"
    """Divide the centred reward by the group's standard deviation (ddof 1), or leave it centred."""
    std_floor: float = Field(default=1e-3, gt=0)
    """Least standard deviation divided by; keeps float noise from becoming a full-size update."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """Lower clip: the ratio is not rewarded below 1 - clip_low."""
    clip_high: float = Field(default=0.2, gt=0)
    """Upper clip: the ratio is not rewarded above 1 + clip_high."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Passes over one batch of rollouts."""


AlgorithmSpec = GrpoSpec
"""The tagged union; it has one member until the algorithms issue adds the others."""

ALGORITHM_NAMES: tuple[str, ...] = ("grpo",)
GROUP_ADVANTAGE_NAMES: frozenset[str] = frozenset({"grpo"})
"""Algorithms whose baseline is the group: they need at least two samples per prompt."""
