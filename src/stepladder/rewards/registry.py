"""How a `{type = ...}` or `{use = ...}` mapping becomes the reward of a run.

Called by the study's preflight, the worker and the audit. Every run gets a `CompositeReward`, so
that outcome, format and length are always measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stepladder.core.seams import Task
from stepladder.rewards.base import REWARDS
from stepladder.rewards.compose import CompositeReward, CompositeSpec, WeightsSpec, own_term
from stepladder.spec.explain import explain

__all__ = ["REWARDS", "build_reward"]


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
    if "use" not in mapping and mapping.get("type", "composite") == "composite":
        settings = {key: value for key, value in mapping.items() if key != "type"}
        try:
            spec = CompositeSpec.model_validate(settings)
        except ValidationError as error:
            raise explain(error, CompositeSpec, where) from error
        return spec.build(task, where, folder)
    own = own_term(mapping, where, folder)
    watched = CompositeSpec(weights=WeightsSpec(outcome=0.0, format=0.0, length=0.0))
    kept = [term for term in watched.build(task, where, folder).terms if term.name != own.name]
    return CompositeReward([*kept, own])
