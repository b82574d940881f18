"""The reference policy: stored weights, asked through the policy's own network.

Only the weights that train are stored, so one code serves whole models and adapters. Built before a
checkpoint is taken up, while the policy is still the base policy.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from stepladder.core.control import ControlEvent
from stepladder.engine.batch import PackedRollouts
from stepladder.engine.policy import VALUE_HEAD, CausalPolicy
from stepladder.spec.run import KlSpec, RunSpec


class StoredReference:
    """A policy that answers with stored weights: frozen, refreshed, or a moving average."""

    def __init__(self, policy: CausalPolicy, spec: KlSpec, *, mode: str | None = None) -> None:
        self._policy = policy
        self._mode = spec.reference if mode is None else mode
        self._refresh_every = spec.refresh_every
        self._decay = spec.ema_decay
        self._weights = {name: w.detach().clone() for name, w in self._live().items()}

    def logp(self, packed: PackedRollouts) -> Tensor:
        """Return logp_NT, without a gradient."""
        with self._swapped():
            return self._policy.logp(packed)

    @torch.no_grad()
    def after_step(self, step: int) -> ControlEvent | None:
        """Move the reference after a step's updates; a refresh is an event."""
        if self._mode == "ema":
            for name, weight in self._live().items():
                self._weights[name].lerp_(weight, 1.0 - self._decay)
        elif self._mode == "refresh" and step % self._refresh_every == 0:
            for name, weight in self._live().items():
                self._weights[name].copy_(weight)
            return ControlEvent(kind="reference_refreshed", details={"every": self._refresh_every})
        return None

    def state(self) -> dict[str, Tensor]:
        """Return the stored weights; empty when frozen, since the base policy's folder has them."""
        return {} if self._mode == "frozen" else dict(self._weights)

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up saved weights."""
        for name, value in state.items():
            self._weights[name].copy_(value)

    def _live(self) -> dict[str, nn.Parameter]:
        named = self._policy.named_parameters()
        return {name: w for name, w in named.items() if not name.startswith(VALUE_HEAD)}

    @contextmanager
    def _swapped(self) -> Generator[None]:
        """Let the policy's parameters point at the stored weights; nothing is copied."""
        live = self._live()
        own = {name: weight.data for name, weight in live.items()}
        try:
            for name, weight in live.items():
                weight.data = self._weights[name]
            yield
        finally:
            for name, weight in live.items():
                weight.data = own[name]


def build_reference(policy: CausalPolicy, run: RunSpec) -> StoredReference | None:
    """Return the reference; None when nothing asks for the KL, so that no pass is spent on it."""
    return StoredReference(policy, run.kl) if run.kl.measured else None


def build_base(policy: CausalPolicy, run: RunSpec) -> StoredReference | None:
    """Return the base policy apart, for a budget that a moving reference would hide; else None."""
    if run.kl.budget is None or run.kl.reference == "frozen":
        return None
    return StoredReference(policy, run.kl, mode="frozen")
