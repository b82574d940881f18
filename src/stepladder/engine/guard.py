"""The KL cap: looks at each update before it is applied, and keeps a state to fall back to.

Called after the backward pass with that update's own KL, so it costs no pass of its own. A state
is kept as healthy only up to HEALTHY_SHARE of the cap: a batch's KL is an estimate, and a state near
the edge would be over it again on the next batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepladder.core.control import ControlEvent
from stepladder.engine.optim import Optimizer
from stepladder.spec.run import KlSpec

HEALTHY_SHARE = 0.5
WEIGHTS, MOMENTS = "healthy_weights", "healthy_optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapDecision:
    """What becomes of one update."""

    apply: bool = True
    lr_factor: float = 1.0
    kl_coef_factor: float = 1.0
    stop: str | None = None
    """Why the run ends; None: it goes on."""
    event: ControlEvent | None = None
    restored: bool = False
    """Whether the weights are others now: the rest of the batch was drawn by a policy that is gone,
    and its KL would be estimated on the wrong policy's tokens."""


class KlGuard:
    """Holds a policy inside its KL cap."""

    def __init__(
        self, spec: KlSpec, weights: Mapping[str, nn.Parameter], optimizer: Optimizer
    ) -> None:
        assert spec.cap is not None, "a guard without a cap"
        self.cap: float = spec.cap
        self.action = spec.cap_action
        self._weights = dict(weights)
        self._optimizer = optimizer
        self._healthy: dict[str, Tensor] = {}
        self._moments: dict[str, Tensor] = {}

    def check(self, kl: float) -> CapDecision:
        """Return what becomes of an update whose mean KL to the reference is `kl`."""
        if math.isfinite(kl) and kl <= self.cap:
            if self.action == "restore" and kl <= HEALTHY_SHARE * self.cap:
                self._keep()
            return CapDecision()
        shown: float | str = kl if math.isfinite(kl) else str(kl)
        details = {"kl": shown, "cap": self.cap, "response": self.action}
        event = ControlEvent(kind="kl_cap", details=details)
        if self.action == "raise":
            return CapDecision(kl_coef_factor=2.0, event=event)
        if self.action == "stop":
            reason = f"KL to the reference {kl:.3g} is above its cap of {self.cap:g}"
            return CapDecision(apply=False, stop=reason, event=event)
        if self.action == "restore" and self._healthy:
            self._take_up()
            return CapDecision(apply=False, lr_factor=0.5, event=event, restored=True)
        return CapDecision(apply=False, event=event)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return the healthy state as tensors for the checkpoint; empty when none is kept."""
        if not self._healthy:
            return {}
        return {WEIGHTS: self._healthy, MOMENTS: self._moments}

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take up a saved healthy state."""
        device = {name: weight.device for name, weight in self._weights.items()}
        saved = tensors.get(WEIGHTS, {})
        self._healthy = {name: value.to(device[name]) for name, value in saved.items()}
        self._moments = dict(tensors.get(MOMENTS, {}))

    @torch.no_grad()
    def _keep(self) -> None:
        _copy(self._weights, self._healthy)
        _copy(self._optimizer.state(), self._moments)

    @torch.no_grad()
    def _take_up(self) -> None:
        for name, weight in self._weights.items():
            weight.copy_(self._healthy[name])
        self._optimizer.load({name: value.clone() for name, value in self._moments.items()})


def build_guard(
    spec: KlSpec, weights: Mapping[str, nn.Parameter], optimizer: Optimizer
) -> KlGuard | None:
    """Return the guard of the cap; None: there is no cap."""
    return None if spec.cap is None else KlGuard(spec, weights, optimizer)


def _copy(source: Mapping[str, Tensor], kept: dict[str, Tensor]) -> None:
    """Copy tensors into buffers that are used again where the shape is the same."""
    for name in kept.keys() - source.keys():
        del kept[name]
    for name, value in source.items():
        buffer = kept.get(name)
        if buffer is not None and buffer.shape == value.shape and buffer.dtype == value.dtype:
            buffer.copy_(value.detach())
        else:
            kept[name] = value.detach().clone()
