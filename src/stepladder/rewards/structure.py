"""Structure: read a completion's tags with a stack; the answer comes from here and nowhere else.

`<think>...</think><answer>...</answer>`, each once, in this order, only white space beside them.
A pattern over the text would pay for repeated, nested or unclosed tags; this does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stepladder.core.answer import ANSWER, TAGS, THINK


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What the tags of one completion say."""

    think: str | None
    """Text of the first closed think element outside others."""
    answer: str | None
    """Text of the one answer; None when there is none, several, or one that cannot be trusted."""
    well_formed: bool
    problem: str = ""
    """The first thing that is wrong with the format; empty when well formed."""
    position: int | None = None
    """Character at which it is wrong."""


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    closes: bool
    start: int
    end: int


@dataclass(slots=True)
class _Element:
    name: str
    start: int
    inner_start: int
    inner_end: int
    end: int
    depth: int
    clean: bool


@dataclass(slots=True)
class _Reading:
    elements: list[_Element] = field(default_factory=list[_Element])
    problems: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


def parse(text: str) -> Structure:
    """Return the structure of a completion.

    The answer is given when exactly one answer element stands there, closed, not empty, outside
    any think element and after the last think tag, even if the think element is missing; the
    format is then not well formed all the same.
    """
    tags = list(_tags(text))
    reading = _read(tags)
    thinks = [e for e in reading.elements if e.name == THINK and e.depth == 0]
    answer = _answer(text, tags, reading.elements)
    reading.problems.extend(_order_problems(text, tags, reading.elements))
    position, problem = min(reading.problems, key=lambda found: found[0], default=(None, ""))
    return Structure(
        think=text[thinks[0].inner_start : thinks[0].inner_end] if thinks else None,
        answer=answer,
        well_formed=not reading.problems,
        problem=problem,
        position=position,
    )


def _tags(text: str) -> Iterator[_Tag]:
    at = text.find("<")
    while at >= 0:
        tag = next((tag for tag in TAGS if text.startswith(tag, at)), None)
        if tag is not None:
            yield _Tag(tag.strip("</>"), tag.startswith("</"), at, at + len(tag))
        at = text.find("<", at + 1)


def _read(tags: list[_Tag]) -> _Reading:
    """Match tags; what does not match is a problem."""
    reading = _Reading()
    stack: list[_Tag] = []
    inner: list[bool] = []
    for tag in tags:
        if not tag.closes:
            if stack:
                reading.problems.append(
                    (tag.start, f"<{tag.name}> opened inside <{stack[-1].name}>")
                )
                inner = [True] * len(stack)
            stack.append(tag)
            inner.append(False)
        elif not stack or stack[-1].name != tag.name:
            inner = [True] * len(stack)
            reading.problems.append((tag.start, f"</{tag.name}> closes nothing"))
        else:
            opened, dirty = stack.pop(), inner.pop()
            reading.elements.append(
                _Element(
                    tag.name, opened.start, opened.end, tag.start, tag.end, len(stack), not dirty
                )
            )
    reading.problems.extend((tag.start, f"<{tag.name}> is never closed") for tag in stack)
    return reading


def _answer(text: str, tags: list[_Tag], elements: list[_Element]) -> str | None:
    answers = [e for e in elements if e.name == ANSWER]
    if sum(tag.name == ANSWER for tag in tags) != 2 or len(answers) != 1:
        return None
    (found,) = answers
    last_think = max((tag.end for tag in tags if tag.name == THINK), default=0)
    if found.depth or not found.clean or found.start < last_think:
        return None
    return text[found.inner_start : found.inner_end].strip() or None


def _order_problems(
    text: str, tags: list[_Tag], elements: list[_Element]
) -> Iterator[tuple[int, str]]:
    """Return what is wrong beside the matching: counts, order, text outside, empty answer."""
    for name in (THINK, ANSWER):
        opened = [tag.start for tag in tags if tag.name == name and not tag.closes]
        if not opened:
            yield (len(text), f"<{name}> is missing")
        elif len(opened) > 1:
            yield (opened[1], f"<{name}> is repeated")
    outer = sorted((e for e in elements if e.depth == 0), key=lambda e: e.start)
    if [e.name for e in outer][:2] == [ANSWER, THINK]:
        yield (outer[0].start, "<answer> stands before <think>")
    at = 0
    for element in outer:
        yield from _outside(text, at, element.start)
        if element.name == ANSWER and not text[element.inner_start : element.inner_end].strip():
            yield (element.inner_start, "the answer is empty")
        at = element.end
    yield from _outside(text, at, len(text))


def _outside(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    between = text[start:end]
    stray = between.lstrip()
    if stray and not stray.startswith(TAGS):
        yield (start + len(between) - len(stray), "text outside the tags")
