"""Score completions: from samples to rollouts, a grader's fault recorded and never raised.

Called by the engine's collector and evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepladder.core.errors import LabError, boundary
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion, Rollout, RolloutGroup
from stepladder.core.seams import Reward
from stepladder.rewards.base import as_number
from stepladder.rewards.compose import CompositeReward


def score_groups(
    reward: Reward, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]
) -> list[RolloutGroup]:
    """Return one group a prompt, in order; `completions[i]` belong to `prompts[i]`."""
    return [
        RolloutGroup(
            group_id=number,
            prompt=prompt,
            rollouts=tuple(score_one(reward, prompt, completion) for completion in samples),
        )
        for number, (prompt, samples) in enumerate(zip(prompts, completions, strict=True))
    ]


def score_one(reward: Reward, prompt: Prompt, completion: Completion) -> Rollout:
    """Return the rollout of one completion.

    A grader's fault is no verdict on the policy: the rollout has a `failure`, reward 0, and the
    names of the missing terms.
    """
    terms: Mapping[str, float]
    try:
        if isinstance(reward, CompositeReward):
            measured = reward.measure(prompt, completion)
            terms, failures = measured.terms, measured.failures
            total = 0.0 if failures else reward.total(terms)
        else:
            with boundary("reward"):
                given = reward.score(prompt, completion)
                terms, failures = {key: as_number(value) for key, value in given.items()}, {}
                total = sum(terms.values())
    except LabError as error:
        terms, failures, total = {}, {"reward": str(error)}, 0.0
    return Rollout(
        prompt=prompt,
        completion=completion,
        terms=terms,
        reward=total,
        failure="; ".join(failures.values()) or None,
        missing=tuple(failures),
    )
