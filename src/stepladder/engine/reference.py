"""The frozen reference policy. Built only when something asks for the KL to it."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from stepladder.engine.batch import PackedRollouts
from stepladder.engine.load import load_policy
from stepladder.spec.run import RunSpec


class FrozenReference:
    """The base policy as it was before training."""

    def __init__(self, folder: Path, run: RunSpec) -> None:
        self._policy = load_policy(folder, run.model, run.sampling.temperature)
        for weight in self._policy.backbone.model.parameters():
            weight.requires_grad_(False)

    def logp(self, packed: PackedRollouts) -> Tensor:
        """Return logp_NT, without a gradient."""
        return self._policy.logp(packed)


def build_reference(folder: Path, run: RunSpec) -> FrozenReference | None:
    """Return the reference; None when the KL coefficient is 0, so that no pass is spent on it."""
    return FrozenReference(folder, run) if run.kl.coef > 0 else None
