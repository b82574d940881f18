"""Score completions: from samples to rollouts, a grader's fault recorded and never raised.

Called by the engine's collector and evaluation. A reward may offer more than `score`:
`total(terms)` for the scalar (else the terms are summed), `measure(...)` for terms beside faults,
`measure_many(...)` for a whole batch at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from stepladder.core.errors import LabError, boundary
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion, Rollout, RolloutGroup
from stepladder.core.seams import Reward
from stepladder.rewards.base import as_number
from stepladder.rewards.compose import Measured


@runtime_checkable
class HasTotal(Protocol):
    """A reward whose scalar is not the plain sum of its terms."""

    def total(self, terms: Mapping[str, float]) -> float:
        """Return the scalar reward of raw terms."""
        ...


@runtime_checkable
class HasMeasure(Protocol):
    """A reward that tells terms and faults apart."""

    def measure(self, prompt: Prompt, completion: Completion) -> Measured:
        """Return raw terms, and why the others are missing."""
        ...


@runtime_checkable
class HasMeasureMany(Protocol):
    """A reward that is cheaper for many completions at once."""

    def measure_many(
        self, prompts: Sequence[Prompt], completions: Sequence[Completion]
    ) -> Sequence[Measured]:
        """Return the terms of `completions[i]`, which answers `prompts[i]`."""
        ...


def score_groups(
    reward: Reward, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]
) -> list[RolloutGroup]:
    """Return one group a prompt, in order; `completions[i]` belong to `prompts[i]`."""
    pairs = [
        (prompt, completion)
        for prompt, samples in zip(prompts, completions, strict=True)
        for completion in samples
    ]
    found = iter(_measured(reward, pairs))
    rollouts = [
        tuple(
            _rollout(reward, prompt, completion, measured)
            for completion, measured in zip(samples, islice(found, len(samples)), strict=True)
        )
        for prompt, samples in zip(prompts, completions, strict=True)
    ]
    return [
        RolloutGroup(group_id=number, prompt=prompt, rollouts=rollouts[number])
        for number, prompt in enumerate(prompts)
    ]


def score_one(reward: Reward, prompt: Prompt, completion: Completion) -> Rollout:
    """Return the rollout of one completion.

    A grader's fault is no verdict on the policy: the rollout has a `failure`, reward 0, and the
    names of the missing terms.
    """
    return _rollout(reward, prompt, completion, _measure(reward, prompt, completion))


def _measured(reward: Reward, pairs: Sequence[tuple[Prompt, Completion]]) -> Sequence[Measured]:
    """Return what is measured of each pair; a fault of the whole batch is every rollout's."""
    if not isinstance(reward, HasMeasureMany):
        return [_measure(reward, prompt, completion) for prompt, completion in pairs]
    try:
        with boundary("reward"):
            found = reward.measure_many([p for p, _ in pairs], [c for _, c in pairs])
            if len(found) != len(pairs):
                raise ValueError(f"gave {len(found)} results for {len(pairs)} completions")
            return found
    except LabError as error:
        return [Measured(terms={}, failures={"reward": str(error)})] * len(pairs)


def _measure(reward: Reward, prompt: Prompt, completion: Completion) -> Measured:
    try:
        with boundary("reward"):
            if isinstance(reward, HasMeasure):
                return reward.measure(prompt, completion)
            given = reward.score(prompt, completion)
            return Measured(terms={k: as_number(v) for k, v in given.items()}, failures={})
    except LabError as error:
        return Measured(terms={}, failures={"reward": str(error)})


def _rollout(reward: Reward, prompt: Prompt, completion: Completion, measured: Measured) -> Rollout:
    terms, failures, total = measured.terms, measured.failures, 0.0
    if not failures:
        try:
            with boundary("reward"):
                total = as_number(
                    reward.total(terms) if isinstance(reward, HasTotal) else sum(terms.values())
                )
        except LabError as error:
            terms, failures = {}, {"reward": str(error)}
    return Rollout(
        prompt=prompt,
        completion=completion,
        terms=terms,
        reward=total,
        failure="; ".join(failures.values()) or None,
        missing=tuple(failures),
    )
