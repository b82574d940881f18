"""Rows: the user's own prompts from JSONL, in the row schema of verl or as {prompt, answer}.

    {"data_source": "gsm8k", "prompt": [{"role": "user", "content": "..."}],
     "reward_model": {"ground_truth": "72"}, "extra_info": {"index": 0}}
    {"prompt": "...", "answer": "72"}

Every broken row is named by file and line before anything runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

from pydantic import Field, model_validator

from stepladder.core.answer import TAGS, full_marks, parse_number
from stepladder.core.errors import SpecError
from stepladder.core.prompt import Message, Prompt, Split, prompt_id
from stepladder.core.seams import Task
from stepladder.spec.base import Spec
from stepladder.spec.explain import SpecErrors
from stepladder.tasks.base import ANSWER_FORMAT
from stepladder.tasks.split import by_hash

MAX_LISTED = 5
"""Broken rows that are listed; the rest are counted."""
SCHEMA = 'a row is {"prompt": ..., "answer": ...} or verl\'s {"prompt", "reward_model"}'


class RowsSpec(Spec):
    """Prompts from JSONL files of your own, in verl's row schema or as {prompt, answer}."""

    path: str
    """JSONL file with the training rows; relative to the study's file."""
    eval_path: str | None = None
    """JSONL file with evaluation rows; unset: eval_share of `path`, chosen by hash."""
    holdout_path: str | None = None
    """JSONL file with holdout rows; unset: holdout_share of `path`, chosen by hash."""
    eval_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of `path` for evaluation when eval_path is unset."""
    holdout_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of `path` for the holdout when holdout_path is unset."""
    outcome: str | None = None
    """Reward that judges answers; unset: numeric when every gold is a number, else exact."""
    limit: int | None = Field(default=None, ge=1)
    """Read at most this many rows of each file."""
    instructed: bool = False
    """Add the answer format, in words, to the last user message."""

    @model_validator(mode="after")
    def _consistent(self) -> RowsSpec:
        if self.eval_share + self.holdout_share >= 1:
            raise ValueError("eval_share\tand holdout_share leave no row to train on\tlower them")
        return self

    def build(self) -> Task:
        """Read the training and evaluation rows."""
        shares = {
            Split.HOLDOUT: 0.0 if self.holdout_path else self.holdout_share,
            Split.EVAL: 0.0 if self.eval_path else self.eval_share,
        }
        rows = read_rows(Path(self.path), self.limit, self.instructed)
        splits = by_hash(rows, shares)
        if self.eval_path:
            splits[Split.EVAL] = tuple(read_rows(Path(self.eval_path), self.limit, self.instructed))
        if not splits[Split.TRAIN] or not splits[Split.EVAL]:
            raise SpecError(
                "SL0124",
                f"holds {len(rows)} different prompts, too few for a training and an eval split",
                self.path,
                "give eval_path, or more rows",
            )
        splits = {
            split: tuple(replace(prompt, split=split) for prompt in prompts)
            for split, prompts in splits.items()
        }
        golds = [prompt.gold for prompts in splits.values() for prompt in prompts]
        numbers = all(parse_number(gold) is not None for gold in golds)
        return RowsTask(
            name=Path(self.path).stem,
            outcome=self.outcome or ("numeric" if numbers else "exact"),
            splits=splits,
            spec=self,
        )


@dataclass(kw_only=True)
class RowsTask:
    """Prompts of the user's files."""

    name: str
    outcome: str
    splits: Mapping[Split, tuple[Prompt, ...]]
    """The holdout file's rows are not here: it is read when it is asked for."""
    spec: RowsSpec

    def prompts(self, split: Split) -> Sequence[Prompt]:
        """Return every prompt of a split, in the order of the file."""
        if split is Split.HOLDOUT and self.spec.holdout_path:
            return self._holdout
        return self.splits[split]

    def oracle(self, prompt: Prompt) -> str:
        """Return a completion that earns full marks; the rows know no reasoning."""
        return full_marks(prompt.gold, prompt.gold)

    @cached_property
    def _holdout(self) -> tuple[Prompt, ...]:
        path = Path(self.spec.holdout_path or "")
        rows = read_rows(path, self.spec.limit, self.spec.instructed)
        return tuple(replace(prompt, split=Split.HOLDOUT) for prompt in rows)


def read_rows(path: Path, limit: int | None = None, instructed: bool = False) -> list[Prompt]:
    """Return the prompts of a JSONL file; a row repeated word for word is kept once.

    Raises
        SpecError: the file cannot be read or is empty, or rows are broken; by file and line.
    """
    prompts: dict[str, Prompt] = {}
    errors: list[SpecError] = []
    for number, text in _lines(path, limit):
        try:
            prompt = _prompt(text, instructed, f"{path}:{number}")
            known = prompts.setdefault(prompt.id, prompt)
            if known.gold != prompt.gold:
                refuse(f"{path}:{number}", "the same prompt has another answer further up", "")
        except SpecError as error:
            errors.append(error)
    if errors:
        more = len(errors) - MAX_LISTED
        if more > 0:
            errors = errors[:MAX_LISTED]
            errors.append(SpecError("SL0123", f"{more} more rows are broken", str(path)))
        raise SpecErrors(errors)
    if not prompts:
        raise SpecError("SL0122", "holds no rows", str(path), SCHEMA)
    return list(prompts.values())


def refuse(where: str, what: str, fix: str = SCHEMA) -> NoReturn:
    """Refuse one row."""
    raise SpecError("SL0123", what, where, fix)


def _lines(path: Path, limit: int | None) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fix = "give a JSONL file, its path relative to the settings file"
        raise SpecError("SL0121", f"cannot be read: {reason}", str(path), fix) from error
    count = 0
    # Not splitlines(): that also breaks at characters which JSON strings may hold.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and (limit is None or count < limit):
            count += 1
            yield number, line


def _prompt(text: str, instructed: bool, where: str) -> Prompt:
    row = _json_object(text, where)
    messages = _messages(row, where)
    if instructed:
        last = max(i for i, message in enumerate(messages) if message.role == "user")
        asked = Message(role="user", content=f"{messages[last].content}\n{ANSWER_FORMAT}")
        messages = (*messages[:last], asked, *messages[last + 1 :])
    extra = row.get("extra_info")
    return Prompt(
        id=prompt_id(messages),
        messages=messages,
        gold=_gold(row, where),
        split=Split.TRAIN,
        data_source=str(row.get("data_source") or ""),
        extra=cast("dict[str, Any]", extra) if isinstance(extra, dict) else {},
    )


def _json_object(text: str, where: str) -> Mapping[str, Any]:
    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON value")

    try:
        row = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        refuse(where, f"is not valid JSON: {error}", "is the line complete?")
    if not isinstance(row, dict):
        refuse(where, f"holds a {type(row).__name__}, not an object")
    return cast("dict[str, Any]", row)


def _messages(row: Mapping[str, Any], where: str) -> tuple[Message, ...]:
    prompt = row.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        return (Message(role="user", content=prompt),)
    if prompt is None:
        refuse(where, "has no `prompt`")
    if not isinstance(prompt, list) or not prompt:
        refuse(where, "has an empty `prompt`, or one that is neither text nor a list of messages")
    messages: list[Message] = []
    for item in cast("list[Any]", prompt):
        role = item.get("role") if isinstance(item, dict) else None
        content = item.get("content") if isinstance(item, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            refuse(where, "has a message without `role` and `content` as text")
        messages.append(Message(role=role, content=content))
    if not any(message.role == "user" and message.content.strip() for message in messages):
        refuse(where, "has no message of the user")
    return tuple(messages)


def _gold(row: Mapping[str, Any], where: str) -> str:
    model = row.get("reward_model")
    if isinstance(model, dict) and "ground_truth" in model:
        value, name = cast("dict[str, Any]", model)["ground_truth"], "reward_model.ground_truth"
    elif "answer" in row:
        value, name = row["answer"], "answer"
    else:
        refuse(where, "has neither `answer` nor `reward_model.ground_truth`")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        refuse(where, f"`{name}` is a {type(value).__name__}, not text or a number")
    gold = str(value).strip()
    if not gold:
        refuse(where, f"`{name}` is empty")
    if any(tag in gold for tag in TAGS):
        refuse(where, f"`{name}` holds a tag of the answer format", "take the tags out")
    return gold
