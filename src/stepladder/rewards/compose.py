"""The composite reward: a weighted sum that keeps its raw terms.

Called by `rewards/registry.py`; a stranger's whole reward becomes one more term of it. The three built-in terms are always measured, whatever their
weight, so that every run logs outcome, format and length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from stepladder.core.errors import LabError, PluginError, SpecError, boundary
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.core.seams import Reward, Task
from stepladder.rewards.base import as_number, build_part
from stepladder.rewards.shape import FormatReward, LengthReward
from stepladder.spec.base import Spec

BUILTIN_TERMS: tuple[str, ...] = ("outcome", "format", "length")


class WeightsSpec(Spec):
    """Weights of the built-in terms."""

    outcome: float = Field(default=1.0, ge=-100, le=100)
    """Weight of being right (1 or 0)."""
    format: float = Field(default=0.1, ge=-100, le=100)
    """Weight of a well-formed completion (1 or 0)."""
    length: float = Field(default=0.0, ge=-100, le=100)
    """Weight of the length term, in [-1, 0]. Above 0 it also ranks an all-wrong group: by length
    alone, so keep it far below the outcome's."""


@dataclass(frozen=True, slots=True)
class Term:
    """One weighted part."""

    name: str
    weight: float
    part: Reward


class CompositeSpec(Spec):
    """Weighted sum of outcome, format, length and terms of your own."""

    weights: WeightsSpec = WeightsSpec()
    """Weights of the built-in terms."""
    outcome: str | None = None
    """Reward that decides whether an answer is right; unset: the one that the task names."""
    length_tokens: int = Field(default=32, ge=1)
    """Tokens at which the length term reaches -1; set it to the run's max_new_tokens."""
    terms: tuple[dict[str, Any], ...] = ()
    """More terms: `{use = "my_rewards:even", weight = 0.5}`; `name` renames one."""

    def build(
        self, task: Task, where: str = "reward", folder: Path | None = None
    ) -> CompositeReward:
        """Build the reward for a task."""
        outcome = outcome_part(self.outcome or task.outcome, where, folder)
        length = LengthReward(self.length_tokens)
        terms = [
            Term("outcome", self.weights.outcome, outcome),
            Term("format", self.weights.format, FormatReward()),
            Term("length", self.weights.length, length),
        ]
        for number, mapping in enumerate(self.terms):
            added = own_term(mapping, f"{where}.terms[{number}]", folder)
            if added.name in {term.name for term in terms}:
                raise SpecError(
                    "SL0113",
                    f"names the term {added.name!r} again",
                    f"{where}.terms[{number}]",
                    "give it a `name` of its own",
                )
            terms.append(added)
        return CompositeReward(terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Raw terms of one completion, and why the others are missing."""

    terms: Mapping[str, float]
    failures: Mapping[str, str]


class CompositeReward:
    """Measures every term and adds them up by weight."""

    def __init__(self, terms: Sequence[Term]) -> None:
        """Take the terms, each with a name of its own."""
        self.terms = tuple(terms)

    @property
    def weights(self) -> Mapping[str, float]:
        """Term name -> weight."""
        return {term.name: term.weight for term in self.terms}

    def measure(self, prompt: Prompt, completion: Completion) -> Measured:
        """Return the raw terms; a part that fails costs its own term only."""
        terms: dict[str, float] = {}
        failures: dict[str, str] = {}
        for term in self.terms:
            try:
                with boundary(f"reward term {term.name!r}"):
                    terms.update(_values(term, prompt, completion))
            except LabError as error:
                failures[term.name] = str(error)
        return Measured(terms=terms, failures=failures)

    def score(self, prompt: Prompt, completion: Completion) -> dict[str, float]:
        """Return the raw terms.

        Raises
            PluginError: a part failed.
        """
        measured = self.measure(prompt, completion)
        if measured.failures:
            raise PluginError("SL0505", "; ".join(measured.failures.values()), "reward")
        return dict(measured.terms)

    def total(self, terms: Mapping[str, float]) -> float:
        """Return the weighted sum; `name/part` weighs as much as `name`."""
        weights = self.weights
        return sum(weights[name.partition("/")[0]] * value for name, value in terms.items())


def _values(term: Term, prompt: Prompt, completion: Completion) -> dict[str, float]:
    """Return the term's value, or one value a part where the part has several."""
    given = {
        str(key): as_number(value) for key, value in term.part.score(prompt, completion).items()
    }
    if term.name in given and term.name in BUILTIN_TERMS:
        return {term.name: given[term.name]}
    if len(given) == 1:
        return {term.name: next(iter(given.values()))}
    if not given or term.name in BUILTIN_TERMS:
        raise ValueError(f"gave {sorted(given)}, no {term.name!r}")
    return {f"{term.name}/{key}": value for key, value in given.items()}


def outcome_part(name: str, where: str, folder: Path | None) -> Reward:
    """Return the reward that judges answers, by registered name or `module:attribute`."""
    if name == "composite":
        raise SpecError("SL0114", "an outcome cannot be a composite", where, "use 'exact'")
    return build_part({"use" if ":" in name else "type": name}, f"{where}.outcome", folder)


def own_term(mapping: Mapping[str, Any], where: str, folder: Path | None) -> Term:
    """Return a stranger's term; `weight` is 1 when it is left out."""
    part = build_part(mapping, where, folder)
    try:
        weight = as_number(mapping.get("weight", 1.0))
    except ValueError as error:
        raise SpecError("SL0102", f"weight {error}", where, "write a plain number") from error
    name = str(mapping.get("name") or mapping.get("use") or mapping.get("type"))
    return Term(name.rpartition(":")[2].replace("/", "_"), weight, part)
