"""Put a run's full state into checkpoints and take it up again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from stepladder.core.errors import StoreError
from stepladder.engine import random_state
from stepladder.engine.checkpoint import Checkpoint
from stepladder.engine.parts import Parts
from stepladder.engine.state import LoopState


def save(parts: Parts, state: LoopState) -> None:
    """Write every tensor and every state that the next step depends on."""
    learner = parts.learner
    random_tensors, random_json = random_state.capture()
    tensors: dict[str, Mapping[str, Tensor]] = {
        "weights": learner.policy.named_parameters(),
        "optimizer": learner.optimizer.state(),
        "random": random_tensors,
    }
    body = {
        "loop": state.to_json(),
        "controllers": {c.name: dict(c.state()) for c in parts.controllers},
        "algorithm": dict(learner.algorithm.state()),
        "random": random_json,
    }
    if learner.critic is not None:
        tensors["critic"] = learner.critic.named_parameters()
    if learner.critic_optimizer is not None:
        tensors["critic_optimizer"] = learner.critic_optimizer.state()
    if learner.reference is not None:
        tensors["reference"] = learner.reference.state()
    if learner.guard is not None:
        tensors |= learner.guard.state()
    if parts.reward_model is not None:
        tensors["reward_model"] = parts.reward_model.state()
        body["reward_model"] = dict(parts.reward_model.json_state())
    parts.checkpoints.save(state.step, tensors, body, state.score)


def restore(parts: Parts, *, reset_optimizer: bool = False) -> LoopState | None:
    """Take up the newest undamaged checkpoint and return its loop state; None: there is none.

    Raises
        StoreError: the checkpoint is of another model, or has no optimiser state and
            `reset_optimizer` does not allow that.
    """
    found = parts.checkpoints.load_latest(needs_optimizer=not reset_optimizer)
    if found is None:
        return None
    take_up_weights(parts, found, reset_optimizer=reset_optimizer)
    learner = parts.learner
    if learner.critic is not None and not learner.critic.shared:
        copy_into(learner.critic.named_parameters(), found.tensors["critic"], found.folder)
    if learner.reference is not None:
        learner.reference.load(found.tensors.get("reference", {}))
    if learner.guard is not None:
        learner.guard.load(found.tensors)
    for controller in parts.controllers:
        controller.load(found.state["controllers"][controller.name])
    learner.algorithm.load(found.state["algorithm"])
    if parts.reward_model is not None:
        parts.reward_model.load(found.tensors["reward_model"], found.state["reward_model"])
    random_state.apply(found.tensors["random"], found.state["random"])
    return LoopState.from_json(found.state["loop"])


def take_up_weights(parts: Parts, found: Checkpoint, *, reset_optimizer: bool = False) -> None:
    """Take up weights and moments alone."""
    learner = parts.learner
    copy_into(learner.policy.named_parameters(), found.tensors["weights"], found.folder)
    if reset_optimizer:
        return
    learner.optimizer.load(found.tensors.get("optimizer", {}))
    if learner.critic_optimizer is not None:
        learner.critic_optimizer.load(found.tensors.get("critic_optimizer", {}))


@torch.no_grad()
def copy_into(
    weights: Mapping[str, nn.Parameter], saved: Mapping[str, Tensor], folder: Path
) -> None:
    """Copy saved tensors into weights of the same names and shapes.

    Raises
        StoreError: they are of another model.
    """
    if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in saved.items()}:
        raise StoreError(
            "SL0410",
            "the checkpoint holds the weights of another model",
            str(folder),
            "start the run in a new folder",
        )
    for name, weight in weights.items():
        weight.copy_(saved[name])
