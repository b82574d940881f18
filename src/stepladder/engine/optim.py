"""AdamW with warm-up, schedule and gradient clipping; a non-finite step is skipped and counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from stepladder.engine.adamw import AdamW, AdamWSettings
from stepladder.spec.run import OptimSpec


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did."""

    grad_norm: float
    """Before clipping."""
    clipped: bool
    applied: bool
    """False: the gradient was not finite, and weights and moments are untouched."""


class Optimizer:
    """Steps named weights."""

    def __init__(self, weights: Mapping[str, nn.Parameter], spec: OptimSpec, steps: int) -> None:
        self.spec = spec
        self.num_steps = steps
        self.weights = dict(weights)
        self._adam = AdamW(
            weights,
            AdamWSettings(
                beta1=spec.beta1, beta2=spec.beta2, eps=spec.eps, weight_decay=spec.weight_decay
            ),
        )

    def learning_rate(self, step: int, scale: float = 1.0) -> float:
        """Return the rate of a 1-based step: a linear rise from 0, then the schedule."""
        spec = self.spec
        if step <= spec.warmup_steps:
            return spec.lr * scale * step / spec.warmup_steps
        rest = max(1, self.num_steps - spec.warmup_steps)
        progress = min(1.0, (step - 1 - spec.warmup_steps) / rest)
        shape = {
            "constant": 1.0,
            "linear": 1.0 - progress,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
        }
        return spec.lr * scale * shape[spec.schedule]

    def zero_grad(self) -> None:
        """Clear gradients."""
        for weight in self.weights.values():
            weight.grad = None

    def update(self, learning_rate: float) -> UpdateResult:
        """Clip and apply the gradients that were accumulated."""
        weights = list(self.weights.values())
        norm_0 = nn.utils.get_total_norm([w.grad for w in weights if w.grad is not None])
        norm = float(norm_0)
        if not math.isfinite(norm):
            self.zero_grad()
            return UpdateResult(norm, clipped=False, applied=False)
        clipped = norm > self.spec.max_grad_norm
        if clipped:
            nn.utils.clip_grads_with_norm_(weights, self.spec.max_grad_norm, norm_0)
        self._adam.step(learning_rate)
        return UpdateResult(norm, clipped=clipped, applied=True)

    def state(self) -> dict[str, Tensor]:
        """Return moments and step counts as `<moment>/<weight name>`; empty before any update."""
        return self._adam.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state."""
        self._adam.load(state)
