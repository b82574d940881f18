"""The outcome `exact`: the answer is the gold text. Full-width forms and white space are folded."""

from __future__ import annotations

from collections.abc import Mapping

from stepladder.core.answer import normalise
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.rewards.structure import parse


class ExactReward:
    """Pays 1 for the gold text, letter for letter and case by case; else 0."""

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:
        """Return the outcome term."""
        answer = parse(completion.text).answer
        right = answer is not None and normalise(answer) == normalise(prompt.gold)
        return {"outcome": float(right)}
