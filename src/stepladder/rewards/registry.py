"""How a `{type = ...}` or `{use = ...}` mapping becomes the reward of a run.

Called by the study's preflight, the worker and the audit. Every run gets a `CompositeReward` (a
learned reward is one, too), so that outcome, format and length are always measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from stepladder.core.seams import Task
from stepladder.rewards.base import REWARDS
from stepladder.rewards.compose import CompositeReward, CompositeSpec, WeightsSpec, own_term
from stepladder.rewards.learned import LEARNED, LearnedSpec
from stepladder.spec.base import Spec
from stepladder.spec.explain import explain

__all__ = ["REWARDS", "build_reward"]

REWARDS.register(LEARNED)(LearnedSpec)

S = TypeVar("S", bound=Spec)


def build_reward(
    mapping: Mapping[str, Any], task: Task, where: str = "reward", folder: Path | None = None
) -> CompositeReward:
    """Build the reward of a run on a task.

    A reward other than the composite is paid alone; the built-in terms stand beside it with
    weight 0.

    Raises
        SpecError: an unknown name or a refused setting.
        PluginError: foreign code failed or gave something that cannot score.
    """
    kind = None if "use" in mapping else mapping.get("type", "composite")
    if kind == "composite":
        return _spec(CompositeSpec, mapping, where).build(task, where, folder)
    if kind == LEARNED:
        return _spec(LearnedSpec, mapping, where).build(task, where, folder)
    own = own_term(mapping, where, folder)
    watched = CompositeSpec(weights=WeightsSpec(outcome=0.0, format=0.0, length=0.0))
    kept = [term for term in watched.build(task, where, folder).terms if term.name != own.name]
    return CompositeReward([*kept, own])


def _spec(kind: type[S], mapping: Mapping[str, Any], where: str) -> S:
    """Return the settings of a whole reward."""
    try:
        return kind.model_validate({k: value for k, value in mapping.items() if k != "type"})
    except ValidationError as error:
        raise explain(error, kind, where) from error
