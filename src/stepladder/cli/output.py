"""The one place that prints: results to stdout, everything else to stderr, JSON on its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

OK, INTERNAL, USAGE, ENVIRONMENT, NO_GO, NOT_ENOUGH, SOME_FAILED, INTERRUPTED = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    130,
)
"""Exit codes of every verb."""


def echo(text: str = "") -> None:
    """Print a result to stdout."""
    print(text, flush=True)  # noqa: T201


def note(text: str) -> None:
    """Print something that is not a result to stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document, and nothing else, to stdout."""
    echo(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2))


def print_error(error: BaseException) -> None:
    """Print one line for each fault that an error carries."""
    carried: Sequence[BaseException] = getattr(error, "errors", (error,))
    for single in carried:
        note(f"error: {' '.join(str(single).split())}")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a titled table to stdout; the title may be empty."""
    if title:
        echo(title)
    echo(table(header, rows))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns; numbers to the right, words to the left."""
    columns = list(zip(*([header, *rows]), strict=True))
    widths = [max(len(value) for value in column) for column in columns]
    right = [_numeric(column[1:]) for column in columns]
    lines = [
        "  ".join(
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join(lines)


def _numeric(values: Sequence[str]) -> bool:
    return all(value[:1].isdigit() or value[:1] in "-+." or not value for value in values)


def clock(seconds: float) -> str:
    """Return a length of time for people: `42s`, `6m10s`, `1h05m`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def language(asked: str | None) -> str:
    """Return en or zh: as asked, else by LC_ALL, LC_MESSAGES or LANG."""
    if asked:
        return asked
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def is_live() -> bool:
    """Return whether stderr is a terminal on which a line may be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
