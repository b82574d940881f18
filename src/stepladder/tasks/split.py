"""Splits: which prompts stand in two of them, and which split a prompt's hash puts it into.

Called by the study's preflight and by the audit. Only ids of the holdout split are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from stepladder.core.errors import PlanError
from stepladder.core.prompt import Prompt, Split
from stepladder.core.seams import Task

EXAMPLE_LENGTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Prompts that stand in two splits."""

    first: Split
    second: Split
    shared: tuple[Prompt, ...]
    """As they stand in the second split."""
    num_second: int
    """Distinct prompts of the second split."""


def overlap(task: Task) -> list[Overlap]:
    """Return what each pair of splits shares; empty when they are disjoint."""
    by_split = {split: {p.id: p for p in task.prompts(split)} for split in Split}
    found: list[Overlap] = []
    for first, second in combinations(Split, 2):
        shared = tuple(p for key, p in by_split[second].items() if key in by_split[first])
        if shared:
            count = len(by_split[second])
            found.append(Overlap(first=first, second=second, shared=shared, num_second=count))
    return found


def assert_disjoint(task: Task) -> None:
    """Refuse a task whose splits share prompts.

    Raises
        PlanError: with the count and one example.
    """
    for pair in overlap(task):
        example = " ".join(pair.shared[0].text.split())
        if len(example) > EXAMPLE_LENGTH:
            example = example[:EXAMPLE_LENGTH] + "..."
        raise PlanError(
            "SL0230",
            f"{len(pair.shared)} of {pair.num_second} prompts of the {pair.second} split also stand"
            f" in the {pair.first} split, such as {example!r}",
            f"task {task.name}",
            f"take them out of one of the two, else the {pair.second} score measures memory",
        )


def by_hash(
    prompts: Iterable[Prompt], shares: Mapping[Split, float]
) -> dict[Split, tuple[Prompt, ...]]:
    """Divide prompts by their content hash; what no share takes goes to train.

    A prompt keeps its place when others are added. A split with a share above 0 never stays empty
    while train has two prompts: it takes the train prompt whose hash is nearest.
    """
    rows = list(prompts)
    place = {p.id: int(p.id, 16) / 16.0 ** len(p.id) for p in rows}
    chosen = dict.fromkeys(place, Split.TRAIN)
    low = 0.0
    for split, share in shares.items():
        inside = [key for key, at in place.items() if low <= at < low + share]
        rest = [key for key, at in place.items() if at >= low + share]
        if share > 0 and not inside and len(rest) > 1:
            inside = [min(rest, key=lambda key: place[key])]
        chosen.update(dict.fromkeys(inside, split))
        low = max(low + share, max((place[key] for key in inside), default=0.0) + 1e-15)
    return {split: tuple(p for p in rows if chosen[p.id] is split) for split in Split}
