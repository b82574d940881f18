"""Reward terms of your own: a function of the prompt and the completion."""

from __future__ import annotations

from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.rewards.structure import parse


def shows_work(prompt: Prompt, completion: Completion) -> float:  # noqa: ARG001
    """Return 1 when the think part holds an equation, else 0."""
    think = parse(completion.text).think
    return float(think is not None and "=" in think)


def brief(prompt: Prompt, completion: Completion) -> float:  # noqa: ARG001
    """Return 1 for as many tokens as the prompt has or fewer, falling to 0 at twice as many."""
    allowed = max(1, len(completion.prompt_token_ids))
    return max(0.0, min(1.0, 2 - len(completion.token_ids) / allowed))
