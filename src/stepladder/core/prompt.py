"""Prompts: what a task asks, with its gold answer. Made by a Task, read by samplers and rewards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Split(StrEnum):
    """Which part of a task a prompt belongs to; holdout is read only at named milestones."""

    TRAIN = "train"
    EVAL = "eval"
    HOLDOUT = "holdout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message."""

    role: str
    content: str


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question with its gold answer."""

    id: str
    """Content hash of the messages: equal questions have equal ids, whatever their split."""
    messages: tuple[Message, ...]
    gold: str
    """The reference answer; how it is compared is the reward's matter."""
    split: Split
    difficulty: float = 0.0
    """Task's own scale; larger is harder."""
    data_source: str = ""
    """Name of the task or data set; routes rewards as verl does."""
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What the task's own verifier needs beside gold, JSON values only."""

    @property
    def text(self) -> str:
        """The contents of all messages, joined."""
        return "".join(message.content for message in self.messages)


def prompt_id(messages: tuple[Message, ...]) -> str:
    """Return the content hash (16 hex digits) that identifies a prompt."""
    text = json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_prompt(
    content: str,
    gold: str,
    split: Split,
    *,
    difficulty: float = 0.0,
    data_source: str = "",
    extra: Mapping[str, Any] = _NOTHING,
) -> Prompt:
    """Build a one-message user prompt with its content hash."""
    messages = (Message(role="user", content=content),)
    return Prompt(
        id=prompt_id(messages),
        messages=messages,
        gold=gold,
        split=split,
        difficulty=difficulty,
        data_source=data_source,
        extra=extra,
    )
