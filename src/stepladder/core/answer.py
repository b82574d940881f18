"""Answers: the tags that mark them, and how their text is normalised and read as a number.

Tasks write completions with these tags, rewards read them; both need the same idea of a number.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

THINK = "think"
ANSWER = "answer"
TAGS: tuple[str, ...] = ("<think>", "</think>", "<answer>", "</answer>")
"""Every tag of the completion format, read exactly as written."""

MAX_NUMBER_LENGTH = 60
"""Characters; a longer number is refused, so that no answer can keep a grader busy."""
MAX_EXPONENT = 300
"""Largest power of ten in e-notation; 1e400 is refused."""
_WHOLE = r"(?:\d{1,3}(?P<separator>[, ])\d{3}(?:(?P=separator)\d{3})*|\d+)"
_NUMBER = re.compile(
    rf"(?P<mantissa>[+-]?(?:{_WHOLE}(?:\.\d*)?|\.\d+))(?:[eE](?P<exponent>[+-]?\d{{1,4}}))?",
    re.ASCII,
)
_WIDTHS = ("<wide>", "<narrow>", "<noBreak>")


def full_marks(think: str, answer: str) -> str:
    """Return a completion in the think/answer format."""
    return f"<think>{think}</think><answer>{answer}</answer>"


def normalise(text: str) -> str:
    """Fold full-width characters to plain ones and runs of white space to one space.

    Not NFKC: that would read 4² as 42.
    """
    if not text.isascii():
        folded = "".join(
            unicodedata.normalize("NFKC", character)
            if unicodedata.decomposition(character).startswith(_WIDTHS)
            else character
            for character in text
        )
        text = unicodedata.normalize("NFC", folded)
    return " ".join(text.split())


def parse_number(text: str) -> Fraction | None:
    """Return the exact value of a whole number, decimal, e-notation or fraction a/b; else None.

    Thousands may be set apart by commas or spaces, in threes and all alike. Infinities, NaN,
    percent signs, units and anything else beside the number are refused.
    """
    if len(text) > MAX_NUMBER_LENGTH:
        return None
    plain = normalise(text.replace("\N{MINUS SIGN}", "-").replace("\\,", " "))
    over, slash, under = plain.partition("/")
    if not slash:
        return _decimal(plain)
    top, bottom = _decimal(over.strip()), _decimal(under.strip())
    if top is None or not bottom or "e" in plain.lower():
        return None
    return top / bottom


def _decimal(text: str) -> Fraction | None:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    exponent = int(found["exponent"] or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    mantissa = found["mantissa"].replace(",", "").replace(" ", "")
    return Fraction(mantissa.removesuffix(".")) * Fraction(10) ** exponent
