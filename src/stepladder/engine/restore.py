"""Put a run's full state into checkpoints and take it up again."""

from __future__ import annotations

import torch

from stepladder.core.errors import StoreError
from stepladder.engine.checkpoint import CheckpointStore
from stepladder.engine.optim import Optimizer
from stepladder.engine.policy import CausalPolicy
from stepladder.engine.state import LoopState


def save(
    checkpoints: CheckpointStore, policy: CausalPolicy, optimizer: Optimizer, state: LoopState
) -> None:
    """Write weights, moments and loop state."""
    checkpoints.save(
        state.step, policy.named_parameters(), optimizer.state(), {"loop": state.to_json()}
    )


def restore(
    checkpoints: CheckpointStore, policy: CausalPolicy, optimizer: Optimizer
) -> LoopState | None:
    """Take up the newest undamaged checkpoint and return its loop state; None: there is none.

    Raises
        StoreError: the checkpoint is of another model.
    """
    found = checkpoints.load_latest()
    if found is None:
        return None
    weights = policy.named_parameters()
    if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in found.weights.items()}:
        raise StoreError(
            "SL0410",
            "the checkpoint holds the weights of another model",
            str(found.folder),
            "start the run in a new folder",
        )
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(found.weights[name])
    optimizer.load(found.moments)
    return LoopState.from_json(found.state["loop"])
