"""Parts of a reward: the names there are, and how a mapping or a plain function becomes a part.

A part is anything with `score(prompt, completion) -> {term: value}`; a stranger may also give a
function `(prompt, completion) -> float`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from stepladder.core.errors import PluginError, boundary
from stepladder.core.prompt import Prompt
from stepladder.core.registry import Registry, on_path
from stepladder.core.rollout import Completion
from stepladder.core.seams import Reward
from stepladder.spec.base import Spec
from stepladder.spec.explain import explain

REWARDS: Registry[Any] = Registry(
    "rewards",
    {
        "composite": "stepladder.rewards.compose:CompositeSpec",
        "exact": "stepladder.rewards.exact:ExactReward",
        "numeric": "stepladder.rewards.numeric:NumericReward",
        "countdown": "stepladder.rewards.countdown:CountdownReward",
        "format": "stepladder.rewards.shape:FormatReward",
        "length": "stepladder.rewards.shape:LengthSpec",
    },
)
"""A factory is a Spec with `build()`, a class or callable of the settings, or a scoring function."""

NOT_SETTINGS = frozenset({"type", "use", "weight", "name"})


@dataclass(frozen=True, slots=True)
class FunctionReward:
    """A plain function as a part; its one term has the function's name."""

    name: str
    function: Callable[[Prompt, Completion], float]

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:
        """Return the function's value, or its terms if it returns several."""
        value: Any = self.function(prompt, completion)
        return (
            cast("Mapping[str, float]", value) if isinstance(value, Mapping) else {self.name: value}
        )


def build_part(mapping: Mapping[str, Any], where: str, folder: Path | None = None) -> Reward:
    """Build the part that a `{type = ...}` or `{use = ...}` mapping names.

    Raises
        SpecError: an unknown name or a refused setting.
        PluginError: foreign code failed or gave something that cannot score.
    """
    factory = REWARDS.resolve(mapping, where, folder)
    name = str(mapping.get("use") or mapping.get("type"))
    settings = {key: value for key, value in mapping.items() if key not in NOT_SETTINGS}
    part = _made(factory, settings, name, where, folder)
    if not isinstance(part, Reward) and _scores(part):
        part = FunctionReward(name.rpartition(":")[2] or name, part)
    if inspect.isclass(part) or not isinstance(part, Reward):
        raise PluginError(
            "SL0504",
            f"reward {name!r} gave a {type(part).__name__}, which cannot score",
            where,
            "it needs score(prompt, completion), or to be a function of the two",
        )
    return part


def _made(
    factory: Any, settings: Mapping[str, Any], name: str, where: str, folder: Path | None
) -> Any:
    """Return what the factory builds, or the factory itself where it is a ready part."""
    if inspect.isclass(factory) and issubclass(factory, Spec):
        try:
            spec: Any = factory.model_validate(settings)
        except ValidationError as error:
            raise explain(error, factory, where) from error
        with boundary(f"reward {name!r}"):
            return spec.build()
    ready = isinstance(factory, Reward) and not inspect.isclass(factory)
    if not callable(factory) or (not settings and (ready or _scores(factory))):
        return factory
    with on_path(folder), boundary(f"reward {name!r}"):
        return cast("Callable[..., Any]", factory)(**settings)


def _scores(value: Any) -> bool:
    """Return whether a function can be called with a prompt and a completion."""
    if inspect.isclass(value) or not callable(value):
        return False
    needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
    return len(needed) == 2 and all(p.kind is not p.KEYWORD_ONLY for p in needed)


def as_number(value: Any) -> float:
    """Return a term's value as a float.

    Raises
        ValueError: it is no number, or not finite. Text is refused: bool("false") is True.
    """
    if not isinstance(value, Real):
        raise ValueError(f"gave a {type(value).__name__} in place of a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"gave {number}")
    return number
