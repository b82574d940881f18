"""The plan as JSON and back, exactly; and a study's settings as the TOML a person would write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from pydantic import ValidationError

from stepladder.core.errors import PlanError
from stepladder.core.result import SettingChange
from stepladder.spec.run import RunSpec
from stepladder.spec.study import FORMAT_VERSION, StudySpec
from stepladder.study.cell import Cell, Plan, StepCost
from stepladder.study.plan import plan_id


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return a JSON document from which `plan_from_json` makes an equal plan."""
    return {
        "format_version": plan.format_version,
        "plan_id": plan.plan_id,
        "created": plan.created,
        "budget_s": plan.budget_s,
        "trims": list(plan.trims),
        "stated_contrasts": list(plan.stated_contrasts),
        "facts": dict(plan.facts),
        "costs": {kind: asdict(cost) for kind, cost in plan.costs.items()},
        "spec": plan.spec.model_dump(mode="json"),
        "cells": [_cell_to_json(cell) for cell in plan.cells],
    }


def _cell_to_json(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "arm": cell.arm,
        "seed": cell.seed,
        "axis_values": dict(cell.axis_values),
        "ratios": dict(cell.ratios),
        "estimated_s": cell.estimated_s,
        "changes": [asdict(change) for change in cell.changes],
        "run": cell.run.model_dump(mode="json"),
        "provenance": dict(cell.provenance),
    }


def plan_from_json(document: Mapping[str, Any]) -> Plan:
    """Return the plan of a JSON document.

    Raises
        PlanError: another format version, missing parts, or edited after it was made.
    """
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise PlanError(
            "SL0208",
            f"the plan has format version {version!r}, this stepladder reads {FORMAT_VERSION}",
            "plan.json",
            "use the version that made it, or --fresh to plan anew",
        )
    try:
        plan = _read(document)
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise PlanError(
            "SL0209",
            f"cannot be read: {' '.join(str(error).split())[:200]}",
            "plan.json",
            "restore the file, or --fresh to plan anew",
        ) from error
    if plan_id(plan.spec, plan.cells) != plan.plan_id:
        raise PlanError(
            "SL0209",
            "was edited after it was made: its content no longer matches its plan_id",
            "plan.json",
            "restore the file, or --fresh to plan anew",
        )
    return plan


def _read(document: Mapping[str, Any]) -> Plan:
    return Plan(
        plan_id=document["plan_id"],
        format_version=document["format_version"],
        created=document["created"],
        spec=StudySpec.model_validate(document["spec"]),
        cells=tuple(_cell_from_json(cell) for cell in document["cells"]),
        costs={kind: StepCost(**cost) for kind, cost in document["costs"].items()},
        budget_s=document["budget_s"],
        trims=tuple(document["trims"]),
        stated_contrasts=tuple(document["stated_contrasts"]),
        facts=dict(document["facts"]),
    )


def _cell_from_json(document: Mapping[str, Any]) -> Cell:
    return Cell(
        id=document["id"],
        axis_values=dict(document["axis_values"]),
        ratios=dict(document["ratios"]),
        arm=document["arm"],
        seed=document["seed"],
        run=RunSpec.model_validate(document["run"]),
        changes=tuple(SettingChange(**change) for change in document["changes"]),
        provenance=dict(document["provenance"]),
        estimated_s=document["estimated_s"],
    )


def to_toml(tree: Mapping[str, Any], section: str = "") -> str:
    """Return settings as TOML; None leaves are left out (TOML has no null)."""
    plain = {k: v for k, v in tree.items() if not isinstance(v, Mapping) and v is not None}
    tables: dict[str, Mapping[str, Any]] = {
        k: cast("Mapping[str, Any]", v) for k, v in tree.items() if isinstance(v, Mapping)
    }
    lines = [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    if section and (lines or not tables):
        lines.insert(0, f"[{section}]")
    text = "\n".join(lines) + "\n\n" if lines else ""
    for name, table in tables.items():
        text += to_toml(table, f"{section}.{_key(name)}" if section else _key(name))
    return text


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return "[" + ", ".join(_value(item) for item in items) + "]"
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in table.items()) + "}"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
