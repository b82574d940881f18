"""The outcome `countdown`: the answer is an expression over the given numbers that hits the target.

A small recursive-descent reader with exact fractions; nothing is handed to `eval`. Length, depth
and number size are bounded, so no answer can keep it busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from stepladder.core.answer import normalise
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion
from stepladder.rewards.structure import parse

MAX_LENGTH = 200
"""Characters of an expression."""
MAX_DEPTH = 20
"""Parentheses inside one another."""
MAX_DIGITS = 6
"""Digits of one number."""


class CountdownReward:
    """Pays 1 for an expression of the given numbers, each used as asked, that hits the target."""

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:
        """Return the outcome term."""
        numbers = [int(number) for number in prompt.extra["numbers"]]
        target = Fraction(prompt.extra["target"])
        use_all = bool(prompt.extra.get("use_all", True))
        answer = parse(completion.text).answer
        return {"outcome": float(answer is not None and hits(answer, numbers, target, use_all))}


def hits(expression: str, numbers: list[int], target: Fraction, use_all: bool) -> bool:
    """Return whether an expression is valid, uses the numbers as asked and equals the target."""
    try:
        value, used = evaluate(expression)
    except (ValueError, ZeroDivisionError):
        return False
    given, taken = Counter(numbers), Counter(used)
    return value == target and (taken == given if use_all else taken <= given)


def evaluate(expression: str) -> tuple[Fraction, list[int]]:
    """Return the exact value of an expression and the numbers in it.

    Raises
        ValueError: anything but whole numbers, + - * / and parentheses, or over the bounds.
        ZeroDivisionError: a division by zero.
    """
    text = normalise(expression)
    if len(text) > MAX_LENGTH:
        raise ValueError(f"longer than {MAX_LENGTH} characters")
    reader = _Reader(_tokens(text))
    value = reader.sum(0)
    if reader.here is not None:
        raise ValueError(f"unexpected {reader.here!r}")
    return value, reader.used


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        end = at + 1
        if text[at] in "0123456789":
            while end < len(text) and text[end] in "0123456789":
                end += 1
            if end - at > MAX_DIGITS:
                raise ValueError("a number is too long")
        elif text[at] not in "+-*/() ":
            raise ValueError(f"unexpected {text[at]!r}")
        if text[at] != " ":
            tokens.append(text[at:end])
        at = end
    return tokens


class _Reader:
    """sum := product (+|- product)*; product := atom (*|/ atom)*; atom := number | ( sum )."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.used: list[int] = []

    @property
    def here(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.here
        if token is None:
            raise ValueError("ends too early")
        self.at += 1
        return token

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while self.here in ("+", "-"):
            value = (
                value + self.product(depth) if self.take() == "+" else value - self.product(depth)
            )
        return value

    def product(self, depth: int) -> Fraction:
        value = self.atom(depth)
        while self.here in ("*", "/"):
            value = value * self.atom(depth) if self.take() == "*" else value / self.atom(depth)
        return value

    def atom(self, depth: int) -> Fraction:
        token = self.take()
        if token == "(" and depth < MAX_DEPTH:
            value = self.sum(depth + 1)
            if self.take() != ")":
                raise ValueError("a parenthesis is not closed")
            return value
        if not token[0].isdigit():
            raise ValueError(f"unexpected {token!r}")
        self.used.append(int(token))
        return Fraction(int(token))
