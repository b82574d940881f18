"""Arithmetic: `37+58=` with a scratchpad of column sums. The ladder's own task.

The dial is the number of digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import Field, model_validator

from stepladder.core.seams import Task
from stepladder.tasks.base import Draft, GeneratedSpec, generate


class ArithmeticSpec(GeneratedSpec):
    """Sums (and differences, products) of whole numbers, with a column scratchpad."""

    digits: int = Field(default=2, ge=1, le=6)
    """Difficulty dial: most digits of a number."""
    min_digits: int | None = Field(default=None, ge=1, le=6)
    """Fewest digits; each prompt takes one count from the range for all its numbers. Unset: the
    same as digits."""
    terms: int = Field(default=2, ge=2, le=5)
    """Numbers in one prompt."""
    operations: tuple[Literal["+", "-", "*"], ...] = ("+",)
    """Which signs may stand between numbers."""

    @model_validator(mode="after")
    def _consistent(self) -> ArithmeticSpec:
        if self.min_digits is not None and self.min_digits > self.digits:
            raise ValueError(f"min_digits\tis above digits ({self.digits})\tlower it")
        if not self.operations or len(set(self.operations)) < len(self.operations):
            raise ValueError('operations\tmust name each sign once\twrite ["+", "-"]')
        return self

    def build(self) -> Task:
        """Draw the prompts."""
        return generate("arithmetic", "numeric", self, self._draw)

    def _draw(self, rng: Random) -> Draft:
        digits = rng.randint(self.min_digits or self.digits, self.digits)
        low = 0 if digits == 1 else 10 ** (digits - 1)
        numbers = [rng.randint(low, 10**digits - 1) for _ in range(self.terms)]
        signs = [rng.choice(self.operations) for _ in range(self.terms - 1)]
        pairs = zip(signs, numbers[1:], strict=True)
        text = str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in pairs)
        value, steps = _by_precedence(numbers, signs)
        return Draft(
            short=f"{text}=",
            asked=f"What is {text}?",
            gold=str(value),
            work=_scratchpad(numbers, signs) or ",".join(steps),
            difficulty=float(digits),
        )


def _scratchpad(numbers: Sequence[int], signs: Sequence[str]) -> str:
    """Return column work where one sign rules; empty: write the steps instead."""
    if set(signs) == {"+"}:
        return column_sums(numbers)
    if signs == ["-"] and numbers[0] >= numbers[1]:
        return column_differences(numbers[0], numbers[1])
    if signs == ["*"]:
        return partial_products(numbers[0], numbers[1])
    return ""


def column_sums(numbers: Sequence[int]) -> str:
    """Return the columns from the right, the carry last: 37+58 gives `7+8=15,3+5+1=9`."""
    columns = [str(number)[::-1] for number in numbers]
    parts: list[str] = []
    carry = 0
    for place in range(max(map(len, columns))):
        digits = [int(column[place]) if place < len(column) else 0 for column in columns]
        if place:
            digits.append(carry)
        total = sum(digits)
        parts.append(f"{'+'.join(map(str, digits))}={total}")
        carry = total // 10
    return ",".join(parts)


def column_differences(larger: int, smaller: int) -> str:
    """Return the columns from the right, borrows taken off: 52-17 gives `12-7=5,5-1-1=3`."""
    parts: list[str] = []
    borrow = 0
    for place in range(len(str(larger))):
        top, bottom = larger // 10**place % 10, smaller // 10**place % 10
        lent = 10 if top - bottom - borrow < 0 else 0
        taken = f"{top + lent}-{bottom}" + (f"-{borrow}" if place else "")
        parts.append(f"{taken}={top + lent - bottom - borrow}")
        borrow = lent // 10
    return ",".join(parts)


def partial_products(first: int, second: int) -> str:
    """Return one product a digit, then the sum: 37*58 gives `37*8=296,37*50=1850,296+1850=2146`."""
    rows = [int(digit) * 10**place for place, digit in enumerate(str(second)[::-1])]
    parts = [f"{first}*{row}={first * row}" for row in rows]
    running = first * rows[0]
    for row in rows[1:]:
        parts.append(f"{running}+{first * row}={running + first * row}")
        running += first * row
    return ",".join(parts)


def _by_precedence(numbers: Sequence[int], signs: Sequence[str]) -> tuple[int, list[str]]:
    """Return the value and one equation a step: products first, then from the left."""
    values, left, steps = list(numbers), list(signs), list[str]()
    while left:
        at = left.index("*") if "*" in left else 0
        first, second, sign = values[at], values[at + 1], left.pop(at)
        result = {"+": first + second, "-": first - second, "*": first * second}[sign]
        steps.append(f"{first}{sign}{second}={result}")
        values[at : at + 2] = [result]
    return values[0], steps
