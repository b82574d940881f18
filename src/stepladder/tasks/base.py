"""What the built-in tasks share: settings, distinct drawing into splits, the task object itself.

Called by each family's Spec; a stranger's task needs none of it, the Task protocol is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pydantic import Field

from stepladder.core.answer import full_marks
from stepladder.core.errors import PlanError, SpecError
from stepladder.core.prompt import Prompt, Split, make_prompt
from stepladder.core.rng import seed_for
from stepladder.spec.base import Spec

DEFAULT_SIZES: Mapping[Split, int] = {Split.HOLDOUT: 512, Split.EVAL: 512, Split.TRAIN: 4096}
"""In drawing order: raising num_train leaves eval and holdout as they are."""
ANSWER_FORMAT = (
    "Think first, between <think> and </think>; "
    "then write only the answer, between <answer> and </answer>."
)


class GeneratedSpec(Spec):
    """Settings of every task that makes its own prompts."""

    num_train: int | None = Field(default=None, ge=1, le=1_000_000)
    """Training prompts; unset: 4096, fewer when fewer distinct prompts exist."""
    num_eval: int | None = Field(default=None, ge=1, le=1_000_000)
    """Evaluation prompts; unset: 512, fewer when fewer distinct prompts exist."""
    num_holdout: int | None = Field(default=None, ge=1, le=1_000_000)
    """Holdout prompts; unset: 512, fewer when fewer distinct prompts exist."""
    seed: int = Field(default=0, ge=0)
    """Seed of the prompts; another seed is another data set, not another split."""
    instructed: bool = False
    """Ask in words, with the answer format, for a chat model; else the bare short form."""

    def wanted(self) -> dict[Split, int | None]:
        """Return the set size of each split, None where it was left to the default."""
        return {
            Split.HOLDOUT: self.num_holdout,
            Split.EVAL: self.num_eval,
            Split.TRAIN: self.num_train,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A prompt before it is put into a split."""

    short: str
    """The bare form; equal forms are the same prompt."""
    asked: str
    """The question in words."""
    gold: str
    work: str
    """What the oracle writes between the think tags."""
    difficulty: float
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(kw_only=True)
class FixedTask:
    """A task whose prompts are all known."""

    name: str
    outcome: str
    splits: Mapping[Split, tuple[Prompt, ...]]
    work: Mapping[str, str]
    """Prompt id -> what the oracle writes between the think tags."""

    def prompts(self, split: Split) -> Sequence[Prompt]:
        """Return every prompt of a split, in a fixed order."""
        return self.splits[split]

    def oracle(self, prompt: Prompt) -> str:
        """Return a completion that earns full marks.

        Raises
            PlanError: the prompt is not this task's.
        """
        if prompt.id not in self.work:
            raise PlanError("SL0231", f"prompt {prompt.id} is not a prompt of task {self.name!r}")
        return full_marks(self.work[prompt.id], prompt.gold)


def generate(
    name: str, outcome: str, spec: GeneratedSpec, draw: Callable[[Random], Draft | None]
) -> FixedTask:
    """Build a task from distinct draws; `draw` may return None to try again.

    Raises
        SpecError: fewer distinct prompts exist than the splits need.
    """
    wanted = spec.wanted()
    total = sum(size or DEFAULT_SIZES[split] for split, size in wanted.items())
    drafts = _distinct(draw, Random(seed_for("task", name, spec.seed)), total)
    sizes = _sizes(wanted, len(drafts), name)
    splits: dict[Split, tuple[Prompt, ...]] = {}
    work: dict[str, str] = {}
    start = 0
    for split, size in sizes.items():
        made = [_prompt(draft, split, name, spec) for draft in drafts[start : start + size]]
        work.update((p.id, d.work) for p, d in zip(made, drafts[start : start + size], strict=True))
        splits[split] = tuple(made)
        start += size
    return FixedTask(name=name, outcome=outcome, splits=splits, work=work)


def _prompt(draft: Draft, split: Split, name: str, spec: GeneratedSpec) -> Prompt:
    content = f"{draft.asked}\n{ANSWER_FORMAT}" if spec.instructed else draft.short
    return make_prompt(
        content,
        draft.gold,
        split,
        difficulty=draft.difficulty,
        data_source=name,
        extra=draft.extra,
    )


def _distinct(draw: Callable[[Random], Draft | None], rng: Random, total: int) -> list[Draft]:
    """Return up to `total` distinct drafts; ends when new ones have become very rare."""
    found: dict[str, Draft] = {}
    misses = 0
    # With N equally likely prompts, 20 N misses in a row leave one unseen with odds of e^-20.
    while len(found) < total and misses < max(2000, 20 * len(found)):
        draft = draw(rng)
        if draft is None or draft.short in found:
            misses += 1
        else:
            found[draft.short] = draft
            misses = 0
    return list(found.values())


def _sizes(wanted: Mapping[Split, int | None], found: int, name: str) -> dict[Split, int]:
    """Return the size of each split; those left to the default shrink to what exists."""
    free = {split: DEFAULT_SIZES[split] for split, size in wanted.items() if size is None}
    fixed = sum(size for size in wanted.values() if size is not None)
    left = found - fixed
    if left < len(free) or left < 0:
        raise SpecError(
            "SL0112",
            f"only {found} distinct prompts exist with these settings,"
            f" {fixed + len(free)} or more are needed",
            f"task {name}: num_train, num_eval, num_holdout",
            f"make them smaller, {found} in sum, or make the prompts longer",
        )
    share = min(1.0, left / sum(free.values())) if free else 1.0
    return {
        split: size if size is not None else max(1, int(free[split] * share))
        for split, size in wanted.items()
    }
