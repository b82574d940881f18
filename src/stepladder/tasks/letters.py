"""Letters: spell a made-up word backwards. The dial is the word's length.

The answer is checked exactly; unlike counting letters, no constant answer is often right.
"""

from __future__ import annotations

import string
from random import Random

from pydantic import Field, model_validator

from stepladder.core.seams import Task
from stepladder.tasks.base import Draft, GeneratedSpec, generate


class LettersSpec(GeneratedSpec):
    """A random word, to be spelt backwards; the scratchpad numbers its letters."""

    length: int = Field(default=4, ge=2, le=12)
    """Difficulty dial: most letters of a word."""
    min_length: int | None = Field(default=None, ge=2, le=12)
    """Fewest letters. Unset: the same as length."""

    @model_validator(mode="after")
    def _consistent(self) -> LettersSpec:
        if self.min_length is not None and self.min_length > self.length:
            raise ValueError(f"min_length\tis above length ({self.length})\tlower it")
        return self

    def build(self) -> Task:
        """Draw the prompts."""
        return generate("letters", "exact", self, self._draw)

    def _draw(self, rng: Random) -> Draft | None:
        length = rng.randint(self.min_length or self.length, self.length)
        word = "".join(rng.choice(string.ascii_lowercase) for _ in range(length))
        backwards = word[::-1]
        if word == backwards:
            return None  # a copy would be paid
        numbered = "".join(f"{place}{letter}" for place, letter in enumerate(word, 1))
        return Draft(
            short=f"reverse {word}=",
            asked=f"Spell the word {word!r} backwards.",
            gold=backwards,
            work=numbered,
            difficulty=float(length),
        )
