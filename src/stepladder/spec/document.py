"""Write docs/reference/settings.md and metrics.md from the classes and the table themselves.

`python -m stepladder.spec.document docs/reference` writes both; a test keeps them equal to this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stepladder.core.metrics import METRICS, Layer
from stepladder.spec.explain import known_paths
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
        "value came from.",
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
    plain = {n: f for n, f in model.model_fields.items() if n not in skipped and not _section(f)}
    yield from _table("", plain)
    for name, field in model.model_fields.items():
        section = _section(field)
        if section is not None and name not in skipped:
            yield f"{heading} {name}"
            yield ""
            yield field.description or ""
            yield ""
            yield from _table(f"{name}.", section.model_fields)


def _table(prefix: str, fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        kind = f"{type_text(field.annotation)}{_limits(field)}"
        meaning = " ".join((field.description or "").split())
        default = json.dumps(_default(field), ensure_ascii=False)
        yield f"| `{prefix}{name}` | {_cell(kind)} | `{default}` | {_cell(meaning)} |"
    yield ""


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
    if origin is dict:
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


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(folder: Path) -> None:
    """Write every generated page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
