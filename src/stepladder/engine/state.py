"""LoopState: everything of a run that changes and is not a weight. It lives in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stepladder.core.control import Knobs
from stepladder.spec.run import RunSpec


@dataclass(slots=True)
class LoopState:
    """Counters and knobs. Our own random numbers need no state: every draw is seeded by purpose and step."""

    knobs: Knobs
    step: int = 0
    """Last finished step; 0: only the base policy was evaluated, or nothing yet."""
    policy_version: int = 0
    """Optimiser steps that were applied to the weights, counted by training step."""
    num_samples: int = 0
    num_tokens: int = 0
    num_updates: int = 0
    num_skipped: int = 0
    """Updates that were left out."""
    steps_without_update: int = 0
    """Steps in a row in which every update was left out."""
    skip_reasons: tuple[str, ...] = ()
    """Why the updates of the last such step were left out."""
    scores: tuple[float, ...] = ()
    """Held-out scores of the last evaluations, newest last, as many as `eval.window`."""
    dense: bool = False
    """Dump rollouts at every step; an observer asked for it."""

    stopped_for_good: str | None = None
    """Why an observer ended the run for good; None: it goes on. A resumed run must not go on."""

    @property
    def score(self) -> float | None:
        """Return the mean of the last held-out scores; None before the first."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @classmethod
    def start(cls, run: RunSpec) -> LoopState:
        """Return the state before the first step."""
        return cls(knobs=Knobs(kl_coef=run.kl.coef, entropy_coef=run.entropy.coef))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LoopState:
        """Return a saved state."""
        tuples = {name: tuple(values[name]) for name in ("skip_reasons", "scores")}
        return cls(**{**values, **tuples, "knobs": Knobs(**values["knobs"])})
