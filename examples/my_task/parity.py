"""A task of your own: is the number of ones in a row of bits even or odd?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from stepladder.core.answer import full_marks
from stepladder.core.prompt import Prompt, Split, make_prompt

SHARES = {0: Split.HOLDOUT, 1: Split.EVAL}


class Parity:
    """Every row of `length` bits; the dial is the length."""

    name = "parity"
    outcome = "exact"

    def __init__(self, length: int = 10) -> None:
        """Sort every row into a split by its own hash, so that no split shares a prompt."""
        self.rows: dict[Split, list[Prompt]] = {split: [] for split in Split}
        for bits in product("01", repeat=length):
            row = "".join(bits)
            gold = "odd" if row.count("1") % 2 else "even"
            prompt = make_prompt(f"ones in {row}=", gold, Split.TRAIN)
            split = SHARES.get(int(prompt.id, 16) % 8, Split.TRAIN)
            self.rows[split].append(make_prompt(prompt.text, gold, split))

    def prompts(self, split: Split) -> Sequence[Prompt]:
        """Return every prompt of a split, in a fixed order."""
        return self.rows[split]

    def oracle(self, prompt: Prompt) -> str:
        """Return a completion that earns full marks."""
        return full_marks(str(prompt.text.count("1")), prompt.gold)
