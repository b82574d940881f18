"""AdamW on torch's fused kernel, with its state in plain dicts.

Not `torch.optim.AdamW`: its constructor imports torch's compiler, 4 s in every worker process
(performance.md 5). Equal to it by test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWSettings:
    """Constants of the update; the learning rate is given with each one."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Decoupled; on weights of two axes or more, never on norms."""


class AdamW:
    """Steps named weights; moments appear at the first step."""

    def __init__(self, weights: Mapping[str, nn.Parameter], settings: AdamWSettings) -> None:
        self.weights = dict(weights)
        self.settings = settings
        self._moments: dict[str, dict[str, Tensor]] = {}

    def step(self, learning_rate: float) -> None:
        """Apply every weight's gradient in place."""
        decayed = {n: w for n, w in self.weights.items() if w.dim() >= 2}
        plain = {n: w for n, w in self.weights.items() if w.dim() < 2}
        self._apply(decayed, learning_rate, self.settings.weight_decay)
        self._apply(plain, learning_rate, 0.0)

    @torch.no_grad()
    def _apply(
        self, weights: Mapping[str, nn.Parameter], learning_rate: float, weight_decay: float
    ) -> None:
        if not weights:
            return
        states = [self._state(name) for name in weights]
        for state in states:
            state["step"] += 1
        torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
            list(weights.values()),
            _gradients(list(weights.values())),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            lr=learning_rate,
            beta1=self.settings.beta1,
            beta2=self.settings.beta2,
            weight_decay=weight_decay,
            eps=self.settings.eps,
            amsgrad=False,
            maximize=False,
        )

    def _state(self, name: str) -> dict[str, Tensor]:
        if name not in self._moments:
            weight = self.weights[name]
            self._moments[name] = {
                "exp_avg": torch.zeros_like(weight, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(weight, requires_grad=False),
                "step": torch.zeros((), dtype=torch.float32, device=weight.device),
            }
        return self._moments[name]

    def state(self) -> dict[str, Tensor]:
        """Return moments and step counts as `<moment>/<weight name>`; empty before any step."""
        return {
            f"{moment}/{name}": state[moment]
            for name, state in self._moments.items()
            for moment in MOMENTS
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state."""
        self._moments = {
            name: {m: state[f"{m}/{name}"].to(weight.device).clone() for m in MOMENTS}
            for name, weight in self.weights.items()
            if f"step/{name}" in state
        }


def _gradients(weights: Sequence[nn.Parameter]) -> list[Tensor]:
    return [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
