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
MASTER = "master"
REDUCED = frozenset({torch.bfloat16, torch.float16})
"""Types in which a step of a usual learning rate is lost to rounding: bfloat16 keeps 8 bits, so a
change below 1/512 of a weight leaves it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWSettings:
    """Constants of the update; the learning rate is given with each one."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Decoupled; on weights of two axes or more, never on norms."""


class AdamW:
    """Steps named weights; moments appear at the first step.

    Weights of reduced precision have float32 masters: those are stepped and rounded back, so
    whoever overwrites such weights must load the state that belongs to them, too.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter], settings: AdamWSettings) -> None:
        self.weights = dict(weights)
        self.settings = settings
        self._moments: dict[str, dict[str, Tensor]] = {}
        self._masters: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Apply every weight's gradient in place."""
        for (decayed, _, _), names in self._kernel_calls().items():
            self._apply(names, learning_rate, self.settings.weight_decay if decayed else 0.0)
        for name, master in self._masters.items():
            self.weights[name].copy_(master)

    def _kernel_calls(self) -> dict[tuple[bool, torch.dtype, torch.device], list[str]]:
        """Return names by what the fused kernel wants equal in one call, decayed ones first."""
        calls: dict[tuple[bool, torch.dtype, torch.device], list[str]] = {}
        for name, weight in self.weights.items():
            key = (weight.dim() >= 2, self._stepped(name).dtype, weight.device)
            calls.setdefault(key, []).append(name)
        return dict(sorted(calls.items(), key=lambda call: not call[0][0]))

    def _apply(self, names: Sequence[str], learning_rate: float, weight_decay: float) -> None:
        stepped = [self._stepped(name) for name in names]
        states = [self._state(name) for name in names]
        for state in states:
            state["step"] += 1
        torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
            stepped,
            [_gradient(self.weights[n], like) for n, like in zip(names, stepped, strict=True)],
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

    def _stepped(self, name: str) -> Tensor:
        """Return what the update changes: the weight, or its master."""
        weight = self.weights[name]
        if weight.dtype not in REDUCED:
            return weight
        if name not in self._masters:
            self._masters[name] = weight.detach().float()
        return self._masters[name]

    def _state(self, name: str) -> dict[str, Tensor]:
        if name not in self._moments:
            stepped = self._stepped(name)
            self._moments[name] = {
                "exp_avg": torch.zeros_like(stepped, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(stepped, requires_grad=False),
                "step": torch.zeros((), dtype=torch.float32, device=stepped.device),
            }
        return self._moments[name]

    def state(self) -> dict[str, Tensor]:
        """Return moments, step counts and masters as `<kind>/<weight name>`; empty before a step."""
        moments = {
            f"{moment}/{name}": state[moment]
            for name, state in self._moments.items()
            for moment in MOMENTS
        }
        return moments | {f"{MASTER}/{name}": master for name, master in self._masters.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state; names that it lacks begin anew."""
        self._moments = {
            name: {m: state[f"{m}/{name}"].to(weight.device).clone() for m in MOMENTS}
            for name, weight in self.weights.items()
            if f"step/{name}" in state
        }
        self._masters = {
            name: state[f"{MASTER}/{name}"].to(weight.device).clone()
            for name, weight in self.weights.items()
            if f"{MASTER}/{name}" in state
        }


def _gradient(weight: nn.Parameter, stepped: Tensor) -> Tensor:
    return torch.zeros_like(stepped) if weight.grad is None else weight.grad.to(stepped.dtype)
