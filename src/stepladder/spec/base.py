"""Spec: the frozen, strict base of everything a person can set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import BaseModel, ConfigDict, model_validator

OFF = "off"
"""What a file says to turn off a setting that may be null."""


class Spec(BaseModel):
    """A frozen setting class: unknown keys, NaN, infinities and numbers as text are errors."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, values: Any) -> Any:
        """Files have lists, not tuples, and TOML has no null: there `off` stands for it."""
        if not isinstance(values, Mapping):
            return values
        given = dict(cast("Mapping[str, Any]", values))
        for name, value in given.items():
            field = cls.model_fields.get(name)
            kinds = get_args(field.annotation) if field is not None and value == OFF else ()
            if type(None) in kinds and str not in kinds:
                given[name] = None
        return {
            k: tuple(cast("list[Any]", v)) if isinstance(v, list) else v for k, v in given.items()
        }

    def leaves(self) -> dict[str, Any]:
        """Return dotted path -> JSON value for every leaf; lists and plug-in mappings are leaves."""
        return flatten(self.model_dump(mode="json"))

    def content_id(self, exclude: frozenset[str] = frozenset()) -> str:
        """Return 12 hex digits that identify the content, without the dotted paths in `exclude`."""
        kept = {path: value for path, value in self.leaves().items() if path not in exclude}
        return content_hash(kept)


def content_hash(value: Any) -> str:
    """Return 12 hex digits of the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted path -> leaf of a nested mapping; empty mappings are kept as leaves."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(cast("Mapping[str, Any]", value), f"{path}."))
        else:
            flat[path] = value
    return flat


def with_leaf(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a nested mapping with one dotted path set."""
    head, _, rest = path.partition(".")
    copy = dict(tree)
    if rest:
        inner = copy.get(head)
        known: Mapping[str, Any] = cast("Any", inner) if isinstance(inner, Mapping) else {}
        copy[head] = with_leaf(known, rest, value)
    else:
        copy[head] = value
    return copy
