"""verdict.json: a study's result for machines, complete, sorted and the same at every writing.

Training series are left out: they lie in each cell's run folder, which the document names.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from stepladder.core.result import Reason, StudyResult, Verdict
from stepladder.report.i18n import LANGS, reason_text

SCHEMA = 1


def verdict_document(result: StudyResult) -> dict[str, Any]:
    """Return the result as JSON values.

    A number that is not finite becomes null and its path is listed under `non_finite`.
    """
    lost: list[str] = []
    tree = _plain(result, "", lost)
    for cell in tree["cells"]:
        del cell["metrics"]
    tree["verdict"] = _with_texts(result.verdict, tree["verdict"])
    kept = [path for path in lost if ".metrics." not in path]
    return {"schema": SCHEMA, "non_finite": sorted(kept), **tree}


def document_text(document: Mapping[str, Any]) -> str:
    """Return the document as text, sorted, with every digit of its numbers."""
    return (
        json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    )


def write_verdict(result: StudyResult, path: Path) -> None:
    """Write verdict.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document_text(verdict_document(result)), encoding="utf-8")


def _with_texts(verdict: Verdict, tree: dict[str, Any]) -> dict[str, Any]:
    for name in ("next_spend", "what_would_change_it", "confidence"):
        tree[name]["text"] = _texts(getattr(verdict, name))
    for name in ("reasons", "caveats"):
        for reason, entry in zip(getattr(verdict, name), tree[name], strict=True):
            entry["text"] = _texts(reason)
    return tree


def _texts(reason: Reason) -> dict[str, str]:
    return {lang: reason_text(reason, lang) for lang in LANGS}


def _plain(value: Any, path: str, lost: list[str]) -> Any:
    if isinstance(value, Enum):
        # A severity is ordered; its name says more than its number.
        return value.value if isinstance(value, str) else value.name.lower()
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {f.name: _plain(getattr(value, f.name), f"{path}.{f.name}", lost) for f in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{path}.{key}", lost) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, f"{path}.{index}", lost) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(path.removeprefix("."))
        return None
    return value
