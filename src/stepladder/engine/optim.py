"""AdamW with warm-up, schedule, gradient clipping and an alarm; what is not applied is counted."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from stepladder.engine.adamw import REDUCED, AdamW, AdamWSettings
from stepladder.spec.run import OptimSpec

MIN_NORMS = 10
"""Norms that a quantile or an alarm needs; the first updates of a run are often its largest."""
AVERAGE_DECAY = 0.95
NON_FINITE, ALARM = "non_finite", "alarm"


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did."""

    grad_norm: float
    """Before clipping."""
    clipped: bool
    applied: bool
    """False: weights and moments are untouched; `reason` says why."""
    threshold: float = math.inf
    """Norm above which this update was clipped."""
    average: float = 0.0
    """Moving average of the norm, this update included."""
    alarm: bool = False
    """Whether the norm was above `alarm_factor` times the average before it."""
    reason: str = ""
    """`non_finite`, `alarm`, or empty when the update was applied."""


class GradientNorms:
    """The run's own gradient norms: the last ones, and their moving average.

    Norms of exactly 0 carry no gradient and would pull a threshold to 0; they are left out.
    """

    def __init__(self, window: int) -> None:
        self.last: deque[float] = deque(maxlen=window)
        self.count = 0
        self._sum = 0.0

    @property
    def average(self) -> float:
        """Return the moving average, unbiased from the first norm on; 0 without one."""
        return self._sum / (1.0 - AVERAGE_DECAY**self.count) if self.count else 0.0

    def is_alarming(self, norm: float, factor: float) -> bool:
        """Return whether a norm is far above the usual."""
        return self.count >= MIN_NORMS and norm > factor * self.average

    def add(self, norm: float, factor: float) -> None:
        """Take in a finite norm; an alarming one moves the average by no more than the limit."""
        if norm == 0.0:
            return
        counted = factor * self.average if self.is_alarming(norm, factor) else norm
        self._sum = AVERAGE_DECAY * self._sum + (1.0 - AVERAGE_DECAY) * counted
        self.count += 1
        self.last.append(norm)

    def state(self) -> dict[str, Tensor]:
        """Return everything as float64 tensors; empty without a norm."""
        if not self.count:
            return {}
        return {
            "norms/last": torch.tensor(list(self.last), dtype=torch.float64),
            "norms/average": torch.tensor([self._sum, self.count], dtype=torch.float64),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state; one without norms clears them."""
        self.last.clear()
        self._sum, self.count = 0.0, 0
        if "norms/last" in state:
            self.last.extend(state["norms/last"].tolist())
            total, count = state["norms/average"].tolist()
            self._sum, self.count = total, round(count)


class Optimizer:
    """Steps named weights."""

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        spec: OptimSpec,
        steps: int,
        *,
        lr: float | None = None,
        num_parameters: int | None = None,
    ) -> None:
        """`lr` replaces the spec's peak; `num_parameters` is the model's, if not all of it trains."""
        self.spec = spec
        self.num_steps = steps
        self.weights = dict(weights)
        self.peak = spec.lr if lr is None else lr
        self.num_parameters = num_parameters or sum(w.numel() for w in self.weights.values())
        self.norms = GradientNorms(spec.clip_window)
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
            return self.peak * scale * step / spec.warmup_steps
        rest = max(1, self.num_steps - spec.warmup_steps)
        progress = min(1.0, (step - 1 - spec.warmup_steps) / rest)
        shape = {
            "constant": 1.0,
            "linear": 1.0 - progress,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
        }
        floor = 1.0 if spec.schedule == "constant" else spec.final_lr_share
        return self.peak * scale * (floor + (1.0 - floor) * shape[spec.schedule])

    def threshold(self) -> float:
        """Return the norm above which the next update is clipped."""
        spec = self.spec
        if spec.clip == "size_scaled":
            return spec.max_grad_norm * math.sqrt(self.num_parameters / spec.clip_parameters)
        if spec.clip == "quantile" and len(self.norms.last) >= MIN_NORMS:
            return min(spec.max_grad_norm, float(np.quantile(self.norms.last, spec.clip_quantile)))
        return spec.max_grad_norm

    def zero_grad(self) -> None:
        """Clear gradients."""
        for weight in self.weights.values():
            weight.grad = None

    def update(self, learning_rate: float) -> UpdateResult:
        """Clip and apply the gradients that were accumulated, unless they may not be."""
        threshold = self.threshold()
        norm_0 = _total_norm([w.grad for w in self.weights.values() if w.grad is not None])
        norm = float(norm_0)
        finite = math.isfinite(norm)
        alarm = finite and self.norms.is_alarming(norm, self.spec.alarm_factor)
        if finite:
            self.norms.add(norm, self.spec.alarm_factor)
        skipped = alarm and self.spec.alarm_response == "skip"
        reason = ALARM if skipped else "" if finite else NON_FINITE
        clipped = not reason and norm > threshold
        if reason:
            self.zero_grad()
        else:
            if clipped:
                nn.utils.clip_grads_with_norm_(list(self.weights.values()), threshold, norm_0)
            self._adam.step(learning_rate)
        return UpdateResult(
            norm,
            clipped=clipped,
            applied=not reason,
            threshold=threshold,
            average=self.norms.average,
            alarm=alarm,
            reason=reason,
        )

    def state(self) -> dict[str, Tensor]:
        """Return moments as `<moment>/<weight name>` and the norms; empty before any update."""
        return self._adam.state() | self.norms.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state."""
        self._adam.load(state)
        self.norms.load(state)


def _total_norm(gradients: list[Tensor]) -> Tensor:
    """Return the norm of all gradients; never summed in less than float32."""
    if all(grad.dtype not in REDUCED for grad in gradients):
        return nn.utils.get_total_norm(gradients)
    wide = {grad: torch.float32 if grad.dtype in REDUCED else grad.dtype for grad in gradients}
    norms = [torch.linalg.vector_norm(grad, dtype=dtype) for grad, dtype in wide.items()]
    return torch.linalg.vector_norm(torch.stack([norm.float() for norm in norms]))
