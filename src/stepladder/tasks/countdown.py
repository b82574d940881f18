"""Countdown: reach a target from given numbers, `24:1 4 6 8=`. The dial is how many numbers.

Many expressions may be right; the reward `countdown` checks them, gold is one of them.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from pydantic import Field, model_validator

from stepladder.core.seams import Task
from stepladder.tasks.base import Draft, GeneratedSpec, generate


class CountdownSpec(GeneratedSpec):
    """Numbers and a target, to be joined by + - * / and parentheses."""

    numbers: int = Field(default=3, ge=2, le=6)
    """Difficulty dial: how many numbers are given."""
    max_number: int = Field(default=20, ge=4, le=99)
    """Largest given number."""
    max_target: int = Field(default=99, ge=10, le=999)
    """Largest target."""
    operations: tuple[Literal["+", "-", "*", "/"], ...] = ("+", "-", "*", "/")
    """Signs that the gold expression may use; an answer may use all four."""
    use_all: bool = True
    """Every number must be used exactly once; else at most once."""

    @model_validator(mode="after")
    def _consistent(self) -> CountdownSpec:
        if not self.operations or len(set(self.operations)) < len(self.operations):
            raise ValueError('operations\tmust name each sign once\twrite ["+", "-"]')
        return self

    def build(self) -> Task:
        """Draw the prompts."""
        return generate("countdown", "countdown", self, self._draw)

    def _draw(self, rng: Random) -> Draft | None:
        given = [rng.randint(1, self.max_number) for _ in range(self.numbers)]
        parts = [(number, str(number)) for number in given]
        steps: list[str] = []
        while len(parts) > 1:
            first, first_text = parts.pop(rng.randrange(len(parts)))
            second, second_text = parts.pop(rng.randrange(len(parts)))
            sign = rng.choice(self.operations)
            value = _join(first, second, sign)
            if value is None:
                return None
            steps.append(f"{first}{sign}{second}={value}")
            parts.append((value, f"({first_text}{sign}{second_text})"))
        target, text = parts[0]
        if not 1 <= target <= self.max_target or target in given:
            return None
        listed = sorted(given)
        use = "every one of them exactly once" if self.use_all else "each of them at most once"
        return Draft(
            short=f"{target}:{' '.join(map(str, listed))}=",
            asked=f"Make {target} from the numbers {', '.join(map(str, listed))} with + - * / and"
            f" parentheses, using {use}. The answer is the expression alone.",
            gold=text[1:-1],
            work=",".join(steps),
            difficulty=float(self.numbers),
            extra={"numbers": listed, "target": target, "use_all": self.use_all},
        )


def _join(first: int, second: int, sign: str) -> int | None:
    """Return the result; None where it would be negative or no whole number."""
    if sign == "+":
        return first + second
    if sign == "*":
        return first * second
    if sign == "-":
        return first - second if first >= second else None
    return first // second if second and first % second == 0 else None
