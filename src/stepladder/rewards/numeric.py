"""The outcome `numeric`: the answer is a number of exactly the gold's value.

1,234 and 1234.0 and 2468/2 are equal; 0.333 and 1/3 are not: there is no tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepladder.core.answer import parse_number
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.rewards.structure import parse


class NumericReward:
    """Pays 1 for a number equal to the gold as an exact fraction; else 0."""

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:
        """Return the outcome term.

        Raises
            ValueError: the gold answer is no number: a fault of the data, not of the policy.
        """
        gold = parse_number(prompt.gold)
        if gold is None:
            raise ValueError(f"the gold answer {prompt.gold[:40]!r} is no number")
        answer = parse(completion.text).answer
        value = None if answer is None else parse_number(answer)
        return {"outcome": float(value is not None and value == gold)}
