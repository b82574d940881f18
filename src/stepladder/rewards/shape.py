"""Terms about shape: `format` (are the tags right) and `length` (how much of a limit is used)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.rewards.structure import parse
from stepladder.spec.base import Spec


class FormatReward:
    """Pays 1 for one think element and then one answer element, nothing beside them; else 0."""

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:  # noqa: ARG002
        """Return the format term."""
        return {"format": float(parse(completion.text).well_formed)}


class LengthSpec(Spec):
    """Settings of the length term."""

    length_tokens: int = Field(default=32, ge=1)
    """Tokens at which the term reaches -1; set it to the run's max_new_tokens."""

    def build(self) -> LengthReward:
        """Build the term."""
        return LengthReward(self.length_tokens)


class LengthReward:
    """Takes off the share of `length_tokens` that was used: 0 for nothing, -1 at it and beyond."""

    def __init__(self, length_tokens: int) -> None:
        """Take the length that costs 1."""
        self.length_tokens = length_tokens

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:  # noqa: ARG002
        """Return the length term, in [-1, 0]."""
        return {"length": -min(1.0, len(completion.token_ids) / self.length_tokens)}
