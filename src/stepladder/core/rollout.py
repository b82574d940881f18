"""Rollouts: what a policy answered and what it was paid. Complete at birth, never edited.

Flow: Prompt -> (Sampler) Completion -> (Reward) Rollout -> RolloutGroup -> (Algorithm).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from stepladder.core.prompt import Prompt


class StopReason(StrEnum):
    """Why a completion ended."""

    EOS = "eos"
    LENGTH = "length"
    ABORTED = "aborted"

    @property
    def truncated(self) -> bool:
        """Whether the completion was cut at the token limit."""
        return self is StopReason.LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to draw completions."""

    max_new_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """1.0 keeps every token; below 1 the log-probs would not match, so training refuses it."""
    seed: int = 0
    """Seed of this one call; the same call twice draws the same completions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One environment turn inside a completion."""

    end: int
    """Index one past the last token of the turn."""
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled answer; T = number of tokens."""

    prompt_id: str
    sample: int
    """0..G-1 within the prompt's group."""
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """[T], the end-of-sequence token included when it was drawn."""
    logprobs: tuple[float, ...]
    """[T], by the sampler that drew them, at the sampling temperature."""
    stop: StopReason
    policy_version: int
    text: str
    """Decoded without special stop tokens; think and answer tags are kept."""
    action_mask: tuple[bool, ...] | None = None
    """[T], False on environment text; None: the policy chose every token."""
    turns: tuple[Turn, ...] = ()
    """Empty for single-turn tasks."""

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.logprobs), (
            f"{len(self.token_ids)} tokens but {len(self.logprobs)} log-probs"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A completion with its raw reward terms and the scalar they add up to."""

    prompt: Prompt
    completion: Completion
    terms: Mapping[str, float]
    """Raw, unweighted; the outcome term is named `outcome`."""
    reward: float
    """Weighted sum of the terms; 0 when `failure` is set."""
    failure: str | None = None
    """Why no reward could be computed (a fault of the grader); None: it was computed."""
    missing: tuple[str, ...] = ()
    """Names of terms without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The rollouts of one prompt; G = len(rollouts)."""

    group_id: int
    prompt: Prompt
    rollouts: tuple[Rollout, ...]

    def __post_init__(self) -> None:
        strangers = {r.prompt.id for r in self.rollouts} - {self.prompt.id}
        assert not strangers, f"group of prompt {self.prompt.id} holds rollouts of {strangers}"

    @property
    def rewards(self) -> tuple[float, ...]:
        """[G] scalar rewards."""
        return tuple(r.reward for r in self.rollouts)
