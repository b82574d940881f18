"""A reward that is learned from preferences, the gold reward measured beside it.

The scalar that trains the policy is the learned one alone: what the policy gains on it and not on
`gold` is over-optimisation. No torch here: `engine/reward_model.py` attaches the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, ValidationError

from stepladder.core.errors import LabError, SpecError, boundary
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.core.seams import Task
from stepladder.rewards.base import as_number
from stepladder.rewards.compose import CompositeReward, CompositeSpec, Measured, Term
from stepladder.spec.base import Spec
from stepladder.spec.explain import explain

GOLD, LEARNED = "gold", "learned"


class CompletionScorer(Protocol):
    """A model that scores completions, many at once."""

    def scores(self, completions: Sequence[Completion]) -> Sequence[float]:
        """Return one score a completion, in order."""
        ...


class LearnedSpec(Spec):
    """A reward model, trained on preferences that the gold reward labels."""

    gold: dict[str, Any] = Field(default_factory=lambda: {"type": "composite"})
    """Composite reward that labels preferences and is measured beside the learned one."""
    noise: float = Field(default=0.1, ge=0, le=0.5)
    """Share of training preferences whose label is flipped; at 0.5 nothing is left to learn."""
    pairs: int = Field(default=512, ge=8)
    """Preferences of the first training, from rollouts of the base policy."""
    epochs: int = Field(default=4, ge=1)
    """Passes over the preferences of one training."""
    lr: float = Field(default=1e-3, gt=0, lt=1)
    """Peak learning rate of a training; it rises over a tenth of it, then falls linearly to 0."""
    batch_pairs: int = Field(default=16, ge=1)
    """Preferences of one update."""
    refresh_every: int = Field(default=0, ge=0)
    """Steps after which training goes on with preferences from the run's own rollouts; 0: never."""
    refresh_pairs: int = Field(default=128, ge=8)
    """Newest preferences that a refresh takes, at most."""
    seed: int = Field(default=1, ge=0)
    """Seed of preferences, flips and order; runs of different seeds share one first model."""

    def build(self, task: Task, where: str = "reward", folder: Path | None = None) -> LearnedReward:
        """Build the reward for a task; a model must be attached before it can score.

        Raises
            SpecError: the gold reward is no composite, or has a term of one of our names.
        """
        kind = self.gold.get("type", "composite")
        if "use" in self.gold or kind != "composite":
            raise SpecError(
                "SL0116",
                f"is {self.gold.get('use', kind)!r}, but labels come from a composite",
                f"{where}.gold",
                "use {type = 'composite', terms = [...]}, your reward as one of its terms",
            )
        settings = {key: value for key, value in self.gold.items() if key != "type"}
        try:
            spec = CompositeSpec.model_validate(settings)
        except ValidationError as error:
            raise explain(error, CompositeSpec, f"{where}.gold") from error
        gold = spec.build(task, f"{where}.gold", folder)
        if taken := {GOLD, LEARNED} & set(gold.weights):
            raise SpecError(
                "SL0117",
                f"has a term named {sorted(taken)[0]!r}, which the learned reward writes itself",
                f"{where}.gold.terms",
                "give the term another `name`",
            )
        return LearnedReward(gold, self)


class LearnedReward(CompositeReward):
    """Pays the attached model's score; gold's terms and total are watched with weight 0."""

    def __init__(self, gold: CompositeReward, spec: LearnedSpec) -> None:
        super().__init__([Term(term.name, 0.0, term.part) for term in gold.terms])
        self.gold = gold
        self.spec = spec
        self.model: CompletionScorer | None = None
        """Set by the engine when the run starts."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Term name -> weight."""
        return {**super().weights, GOLD: 0.0, LEARNED: 1.0}

    def measure(self, prompt: Prompt, completion: Completion) -> Measured:
        """Return the raw terms of one completion."""
        return self.measure_many([prompt], [completion])[0]

    def measure_many(
        self, prompts: Sequence[Prompt], completions: Sequence[Completion]
    ) -> list[Measured]:
        """Return the raw terms of `completions[i]`, which answers `prompts[i]`; one model call.

        A gold part that fails costs the rollout, as with the composite: what cannot be checked
        may not train.
        """
        assert self.model is not None, "a learned reward scores inside a run, once a model is there"
        watched = [
            self.gold.measure(prompt, completion)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        try:
            with boundary("reward term 'learned'"):
                scores = [as_number(score) for score in self.model.scores(completions)]
                if len(scores) != len(completions):
                    raise ValueError(f"gave {len(scores)} scores to {len(completions)} completions")
        except LabError as error:
            failure = {LEARNED: str(error)}
            return [
                Measured(terms=gold.terms, failures={**gold.failures, **failure})
                for gold in watched
            ]
        return [self._with_score(gold, score) for gold, score in zip(watched, scores, strict=True)]

    def _with_score(self, watched: Measured, score: float) -> Measured:
        terms = {**watched.terms, LEARNED: score}
        if not watched.failures:
            terms[GOLD] = self.gold.total(watched.terms)
        return Measured(terms=terms, failures=watched.failures)
