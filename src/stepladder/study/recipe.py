"""Recipe rules: which settings move along with a scaled axis, as data with reason and evidence.

The figures are the practitioners' (mission.md P3) and are claims to test, not facts: the plan keeps
an unadjusted control beside the adjusted arm. Used by `plan`; every change it makes is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from stepladder.core.errors import PlanError
from stepladder.core.result import SettingChange
from stepladder.spec.base import with_leaf
from stepladder.spec.explain import explain
from stepladder.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One leaf that moves by a factor at each doubling of an axis."""

    id: str
    axis: str
    leaf: str
    """Dotted path in RunSpec; a number."""
    factor: float
    """Multiplies the leaf at each doubling; a ratio r takes factor ** log2(r)."""
    low: float
    """Least factor that the source allows."""
    high: float
    """Largest factor that the source allows."""
    reason: str
    evidence: str
    """Grade and source, for the settings table of the report."""


_REPORTS: tuple[Rule, ...] = (
    Rule(
        id="reports.model.lr",
        axis="model",
        leaf="optim.lr",
        factor=2 / 3,  # report A's worked example: 1.5e-5 -> 1.0e-5
        low=0.5,
        high=0.7,
        reason="a larger model moves further per update and is more sensitive to the rate",
        evidence="one practitioner report, a claim to test: no published RL sweep (scaling.md 3)",
    ),
    Rule(
        id="reports.model.kl",
        axis="model",
        leaf="kl.coef",
        factor=0.5,
        low=0.5,
        high=0.5,
        reason="at one coefficient a larger model is held closer to its start",
        evidence="one practitioner report, a claim to test: no published test (scaling.md 3)",
    ),
    Rule(
        id="reports.model.entropy",
        axis="model",
        leaf="entropy.coef",
        factor=1.25,
        low=1.2,
        high=1.3,
        reason="a larger model starts with lower entropy and explores less",
        evidence="one practitioner report; only log-linear entropy fits by size in print"
        " (scaling.md 3)",
    ),
    Rule(
        id="reports.samples.lr",
        axis="samples_per_prompt",
        leaf="optim.lr",
        factor=1.2,
        low=1.0,
        high=math.sqrt(2),
        reason="a larger batch has a less noisy gradient and bears a larger rate",
        evidence="one practitioner report, a claim to test: the published rule is +41 %,"
        " sqrt of the batch, tested in one GRPO set (scaling.md 3)",
    ),
)

RULES: Mapping[str, tuple[Rule, ...]] = {"reports": _REPORTS, "none": ()}
"""Rule sets by the name that `rules.use` takes."""


def rules_for(axis: str, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules that move something with `axis`."""
    return tuple(rule for rule in rules if rule.axis == axis)


def scaled(value: float, rule: Rule, ratio: float) -> float:
    """Return a leaf's value at `ratio` times the base, to six digits so that it prints cleanly."""
    return float(f"{value * rule.factor ** math.log2(ratio):.6g}")


def apply_rules(
    run: RunSpec, axis: str, ratio: float, rules: Sequence[Rule], *, cell_kind: str = ""
) -> tuple[RunSpec, tuple[SettingChange, ...]]:
    """Return the run with every rule of `axis` applied, and what each moved.

    Raises
        PlanError: a moved setting leaves its allowed range.
    """
    leaves = run.leaves()
    moved: dict[str, Any] = {}
    changes: list[SettingChange] = []
    for rule in rules_for(axis, rules):
        before = float(leaves[rule.leaf])
        after = scaled(before, rule, ratio)
        moved[rule.leaf] = after
        changes.append(_change(rule, cell_kind, before, after))
    return with_settings(run, moved, cell_kind or axis), tuple(changes)


def kept_settings(
    run: RunSpec, axis: str, rules: Sequence[Rule], *, cell_kind: str = ""
) -> tuple[SettingChange, ...]:
    """Return what the unadjusted control keeps where the rules would have moved it."""
    leaves = run.leaves()
    return tuple(
        _change(rule, cell_kind, float(leaves[rule.leaf]), float(leaves[rule.leaf]))
        for rule in rules_for(axis, rules)
    )


def with_settings(run: RunSpec, settings: Mapping[str, Any], where: str) -> RunSpec:
    """Return a validated copy of a run with dotted leaves set.

    Raises
        PlanError: the result contradicts itself; `where` names the cell.
    """
    tree: dict[str, Any] = run.model_dump(mode="json")
    for path, value in settings.items():
        tree = with_leaf(tree, path, value)
    try:
        return RunSpec.model_validate(tree)
    except ValidationError as error:
        found = explain(error, RunSpec, where)
        raise PlanError("SL0201", found.what, found.where, found.fix) from error


def _change(rule: Rule, cell_kind: str, before: float, after: float) -> SettingChange:
    return SettingChange(
        cell_kind=cell_kind,
        path=rule.leaf,
        before=before,
        after=after,
        rule=rule.id,
        evidence=rule.evidence,
    )
