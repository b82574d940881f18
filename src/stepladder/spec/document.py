"""Write docs/reference/settings.md and metrics.md from the classes and the table themselves.

`python -m stepladder.spec.document docs/reference` writes both; a test keeps them equal to this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stepladder.core.metrics import METRICS, Layer
from stepladder.spec.explain import known_paths, members_of, tagged
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec

COMMAND = "python -m stepladder.spec.document docs/reference"
NOTICE = f"<!-- Made by `{COMMAND}`; do not edit. -->"
LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
PLAIN_TYPES: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
}


def settings_page() -> str:
    """Return the reference of every setting, as Markdown."""
    num_run, num_study = len(known_paths(RunSpec)), len(known_paths(StudySpec))
    lines = [
        "# Settings",
        "",
        NOTICE,
        "",
        "A setting's value comes from the default below, then from one TOML (or YAML) file, then",
        "from `--set path=value`. An unknown setting is an error. Every run folder says where each",
        'value came from. A setting that may be null is turned off by `"off"`: TOML has no null.',
        "",
        f"## One run ({num_run} settings)",
        "",
        "`stepladder train run.toml` reads these.",
        "",
        *_tables(RunSpec, "###"),
        f"## One study ({num_study - num_run} settings, and a run's under `base`)",
        "",
        "`stepladder run study.toml` reads these. Each run setting is written with `base.` in front.",
        "",
        *_tables(StudySpec, "###", skipped=frozenset({"base"})),
    ]
    return "\n".join(lines).rstrip() + "\n"


def metrics_page() -> str:
    """Return the reference of every canonical metric, as Markdown."""
    lines = [
        "# Metrics",
        "",
        NOTICE,
        "",
        "Canonical names, the same in every file, chart and language. `{}` stands for a variable",
        "part. *Reduced by* says how several values of one step become one; *better* says which",
        "direction is good in itself. The last column names the same quantity in other trainers.",
        "",
    ]
    for layer in Layer:
        lines += [f"## {layer.value.capitalize()}", ""]
        lines += ["| name | unit | reduced by | better | meaning | elsewhere |", "|" + "---|" * 6]
        for info in METRICS.values():
            if info.layer is layer:
                names = ", ".join(f"`{alias}`" for alias in info.aliases)
                head = f"| `{info.name}` | {info.unit} | {info.reduction} | {info.better} "
                lines.append(f"{head}| {info.meaning} | {names} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Return file name -> text of every generated page."""
    return {"settings.md": settings_page(), "metrics.md": metrics_page()}


def _tables(
    model: type[BaseModel], heading: str, skipped: frozenset[str] = frozenset()
) -> Iterator[str]:
    plain = {n: f for n, f in model.model_fields.items() if n not in skipped and not _members(f)}
    yield from _table("", plain)
    for name, field in model.model_fields.items():
        members = _members(field)
        if not members or name in skipped:
            continue
        yield f"{heading} {name}"
        yield ""
        yield field.description or ""
        yield ""
        if len(members) == 1:
            yield from _table(f"{name}.", members[0].model_fields)
        else:
            yield from _union(name, members, f"{heading}#")


def _union(name: str, members: Sequence[type[BaseModel]], heading: str) -> Iterator[str]:
    """One table of what all members share, then for each what it adds or has otherwise."""
    tags = list(tagged(members))
    first = members[0].model_fields
    tag = first["type"]
    kinds = f"one of {', '.join(f'`{value}`' for value in tags)}"
    yield from _head()
    yield _row(f"{name}.type", kinds, tag.default, tag.description)
    shared = {
        leaf: field
        for leaf, field in _shared_base(members).model_fields.items()
        if leaf != "type" and all(leaf in member.model_fields for member in members)
    }
    yield from _rows(f"{name}.", shared)
    yield ""
    group: dict[str, FieldInfo] = {}
    for value, member in zip(tags, members, strict=True):
        own = {
            leaf: field
            for leaf, field in member.model_fields.items()
            if leaf != "type" and not (leaf in shared and _same(field, shared[leaf]))
        }
        yield f"{heading} {value}"
        yield ""
        yield " ".join((member.__doc__ or "").split())
        yield ""
        changed = {n: f for n, f in own.items() if not (n in group and _same(f, group[n]))}
        again = [n for n in own if n not in changed]
        group = group or own
        if again:
            yield f"As for `{tags[0]}`: {', '.join(f'`{leaf}`' for leaf in again)}."
            yield ""
        if changed:
            yield from _table(f"{name}.", changed)


def _shared_base(members: Sequence[type[BaseModel]]) -> type[BaseModel]:
    """Return the nearest class that every member comes from; its defaults are the common ones."""
    lines = [member.__mro__ for member in members]
    return next(
        c for c in lines[0] if all(c in line for line in lines) and issubclass(c, BaseModel)
    )


def _same(one: FieldInfo, other: FieldInfo) -> bool:
    """Return whether two fields read alike in a table, whatever their description says."""
    return (one.annotation, _default(one), _limits(one)) == (
        other.annotation,
        _default(other),
        _limits(other),
    )


def _table(prefix: str, fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    yield from _head()
    yield from _rows(prefix, fields)
    yield ""


def _head() -> Iterator[str]:
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"


def _rows(prefix: str, fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        kind = f"{type_text(field.annotation)}{_limits(field)}"
        yield _row(f"{prefix}{name}", kind, _default(field), field.description)
        for member in _members(field):
            yield from _rows(f"{prefix}{name}.", member.model_fields)


def _row(path: str, kind: str, default: Any, description: str | None) -> str:
    meaning = " ".join((description or "").split())
    value = json.dumps(default, ensure_ascii=False)
    return f"| `{path}` | {_cell(kind)} | `{value}` | {_cell(meaning)} |"


def type_text(annotation: Any) -> str:
    """Return a type in words: `whole number or null`, `one of grpo`, `list of text`."""
    if annotation in PLAIN_TYPES:
        return PLAIN_TYPES[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in parts)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is type(None) else type_text(part) for part in parts)
    if origin is tuple:
        return f"list of {type_text(parts[0])}"
    if origin is dict or members_of(annotation):
        return "table"
    return str(annotation)


def _limits(field: FieldInfo) -> str:
    found = [
        f"{sign} {getattr(rule, name):g}"
        for rule in field.metadata
        for name, sign in LIMITS.items()
        if getattr(rule, name, None) is not None
    ]
    return f", {' and '.join(found)}" if found else ""


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    return list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _members(field: FieldInfo) -> tuple[type[BaseModel], ...]:
    return members_of(field.annotation)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(folder: Path) -> None:
    """Write every generated page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
