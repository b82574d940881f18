"""The plan: everything decided before the first cell starts. Same inputs, same plan.

From here on nothing is decided by a clock: once `plan.json` lies in the study folder it is followed
to the letter, whoever resumes it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from stepladder.core.errors import LabError, PlanError
from stepladder.spec.base import content_hash
from stepladder.spec.load import Loaded
from stepladder.spec.study import FORMAT_VERSION, StudySpec
from stepladder.study.cell import Cell, Plan, StepCost
from stepladder.study.cost import derive_costs, point_seconds, trim_to_budget
from stepladder.study.shape import Shape, build_cells, full_shape, plan_points

SCHEDULING_LEAVES: frozenset[str] = frozenset({"name", "launch.slots"})
"""Leaves that change no number, so a study may be resumed with other values."""


FIXED_LEAVES: frozenset[str] = frozenset({"samples_per_prompt"})
"""Last parts of leaves that a framework lays its buffers out by: no run can change them."""


class PlanErrors(PlanError):  # noqa: N818  (plural: it carries several)
    """Several things stand against a plan; one line each."""

    def __init__(self, errors: Sequence[LabError]) -> None:
        first = errors[0]
        super().__init__(first.code, first.what, first.where, first.fix)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(LabError.__str__(error) for error in self.errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return (PlanErrors, (self.errors,))


def make_plan(
    loaded: Loaded[StudySpec],
    *,
    costs: Mapping[str, StepCost] | None = None,
    budget_s: float | None = None,
    used_s: float = 0.0,
    num_slots: int = 1,
    created: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan of a study; with a budget it is trimmed to what is left after `used_s`.

    Raises
        PlanError: a cell contradicts itself, or a budget is given without any cost.
    """
    spec = loaded.spec
    known = derive_costs(spec, costs or {})
    shape, trims = full_shape(spec), ()
    if budget_s is not None:
        missing = {point.kind for point in plan_points(spec, shape)} - set(known)
        if missing:
            raise PlanError(
                "SL0205",
                f"a budget needs measured costs, of {', '.join(sorted(missing))} none is known",
                "--budget",
                "give it to `stepladder run`, which measures",
            )
        trimmed = trim_to_budget(spec, known, budget_s - used_s, num_slots)
        shape, trims = trimmed.shape, trimmed.trims
    seconds = point_seconds(spec, plan_points(spec, shape), known)
    cells = build_cells(spec, shape, loaded.provenance, seconds)
    _refuse_twins(cells)
    return Plan(
        plan_id=plan_id(spec, cells),
        format_version=FORMAT_VERSION,
        created=created or now(),
        spec=spec,
        cells=cells,
        costs=known,
        budget_s=budget_s,
        trims=trims,
        stated_contrasts=stated_contrasts(spec, shape),
        facts=dict(facts or {}),
    )


def now() -> str:
    """Return the ISO time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def plan_id(spec: StudySpec, cells: Iterable[Cell]) -> str:
    """Return the content hash of a study and its cells."""
    return content_hash([spec.leaves(), [[cell.id, cell.run.leaves()] for cell in cells]])


def stated_contrasts(spec: StudySpec, shape: Shape) -> tuple[str, ...]:
    """Return the effects named before the runs: each step up of each axis, and each control."""
    found: list[str] = []
    for lower, upper in _pairs(spec.axes.model):
        found.append(f"model:{upper}-{lower}:adjusted")
    found.extend(f"model:{model}:adjusted-unadjusted" for model in shape.unadjusted)
    for few, many in _pairs(sorted(shape.samples)):
        found.append(f"samples_per_prompt:{many}-{few}")
    for early, late in _pairs(sorted(spec.axes.steps)):
        found.append(f"steps:{late:g}-{early:g}")
    return tuple(found)


def _pairs(values: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return pairwise(values)


def plan_differences(planned: StudySpec, asked: StudySpec) -> list[PlanError]:
    """Return one error a leaf that differs from the study folder's plan; slots and name may."""
    before, after = planned.leaves(), asked.leaves()
    return [
        PlanError(
            "SL0206",
            f"is {after.get(path)!r}, but the plan was made with {before.get(path)!r}",
            path,
            change_fix(path),
        )
        for path in sorted({*before, *after} - SCHEDULING_LEAVES)
        if before.get(path) != after.get(path)
    ]


def change_fix(path: str) -> str:
    """Return how to go on when a leaf no longer matches what a folder was begun with."""
    if path.rpartition(".")[2] in FIXED_LEAVES:
        return "it can never change inside a run: begin anew with another --out or --fresh"
    return "choose another --out, or --fresh to begin anew"


def require_same_study(planned: StudySpec, asked: StudySpec) -> None:
    """Refuse to go on in a folder whose plan was made for other settings.

    Raises
        PlanErrors: every differing leaf.
    """
    found = plan_differences(planned, asked)
    if found:
        raise PlanErrors(found)


def _refuse_twins(cells: Sequence[Cell]) -> None:
    seen: dict[str, str] = {}
    for cell in cells:
        if cell.id in seen:
            raise PlanError(
                "SL0207", f"two cells are the same run: {cell.id}", "axes", "remove one value"
            )
        seen[cell.id] = cell.id
