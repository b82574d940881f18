"""Tables of the report: rows of formatted texts from a StudyResult. Called by `model.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from stepladder.core.finding import Finding, Outcome
from stepladder.core.result import CellResult, Curve, Effect, Fit, Forecast, StudyResult
from stepladder.report import numbers
from stepladder.report.i18n import (
    arm_name,
    axis_name,
    finding_advice,
    finding_text,
    finding_title,
    refusal_text,
    state_name,
    translate,
)
from stepladder.report.parts import Column, Line, Table

NUMERIC = {"ratio", "score", "gain", "n", "cost", "stopped", "difference", "p", "holm", "added"}
NUMERIC |= {
    "forecast",
    "equal",
    "best",
    "before",
    "after",
    "base",
    "final",
    "time",
    "tokens",
    "parameters",
}
NUMERIC |= {"seed", "samples", "steps", "cells", "total", "share", "onset", "error"}
NUMERIC |= {"first", "last", "least", "greatest"}


def table(
    id_: str, caption: str, names: str, rows: Sequence[Sequence[str]], empty: str, lang: str
) -> Table:
    """Return a table whose columns are catalogue keys without their `col_`."""
    columns = tuple(
        Column(label=translate(f"col_{name}", lang), numeric=name in NUMERIC)
        for name in names.split()
    )
    return Table(
        id=id_, caption=caption, columns=columns, rows=tuple(map(tuple, rows)), empty=empty
    )


def curve_table(id_: str, curves: Sequence[Curve], caption: str, lang: str) -> Table:
    """Return every point of one axis."""
    rows = [
        (
            arm_name(curve.arm, lang),
            numbers.short_label(point.label),
            f"{point.ratio:g}",
            numbers.interval_text(point.score, lang),
            numbers.interval_text(point.gain, lang, signed=True),
            str(point.score.n),
            ", ".join(f"{seed}: {numbers.number(score, lang)}" for seed, score in point.seeds),
            numbers.duration(point.seconds, lang),
            str(point.num_stopped),
        )
        for curve in curves
        for point in curve.points
    ]
    names = "arm point ratio score gain n seeds cost stopped"
    return table(id_, caption, names, rows, translate("cells_empty", lang), lang)


def effect_label(effect: Effect, labels: Mapping[str, Sequence[str]], lang: str) -> str:
    """Return a contrast in words, or its key when it names no known points."""
    axis, _, rest = effect.key.partition(":")
    middle, _, last = rest.partition(":")
    name = axis_name(axis, lang)
    known = labels.get(axis, ())
    if middle in known and last:
        arms = [arm_name(arm, lang) for arm in last.split("-", 1)]
        pair = translate("minus", lang, a=arms[0], b=arms[-1])
        where = numbers.short_label(middle)
        return f"{name}: " + translate("at", lang, label=where, what=pair)
    for first in known:
        for second in known:
            if middle == f"{first}-{second}":
                key = "minus_arm" if last else "minus"
                a, b = numbers.short_label(first), numbers.short_label(second)
                pair = translate(key, lang, a=a, b=b, arm=arm_name(last, lang))
                return f"{name}: {pair}"
    return effect.key


def effects_table(
    effects: Sequence[Effect], labels: Mapping[str, Sequence[str]], caption: str, lang: str
) -> Table:
    """Return every contrast with its interval and p-values."""
    rows = [
        (
            effect_label(effect, labels, lang),
            numbers.interval_text(effect.difference, lang, signed=True),
            str(effect.difference.n),
            numbers.probability(effect.p_value, lang),
            numbers.probability(effect.p_holm, lang),
            translate("yes" if effect.stated else "no", lang),
        )
        for effect in effects
    ]
    empty = translate("effects_empty", lang)
    return table("effects", caption, "contrast difference n p holm stated", rows, empty, lang)


def forecasts_table(forecasts: Sequence[Forecast], caption: str, lang: str) -> Table:
    """Return what the next doubling of each axis is forecast to bring."""
    none = translate("none_given", lang)
    rows: list[tuple[str, ...]] = []
    for item in forecasts:
        labels = (numbers.short_label(item.from_label), numbers.short_label(item.to_label))
        head = (axis_name(item.axis, lang), *labels)
        added = numbers.duration(item.added_cost_s, lang)
        if item.refused:
            why = refusal_text(item.refused, lang)
            rows.append((*head, none, added, none, none, why))
            continue
        equal = item.gain_at_equal_cost
        rows.append(
            (
                *head,
                numbers.interval_text(item.gain, lang, signed=True),
                added,
                numbers.interval_text(equal, lang, signed=True) if equal else none,
                numbers.share(item.probability_best, lang),
                translate("n_seeds", lang, n=item.gain.n),
            )
        )
    names = "axis from to forecast added equal best note"
    return table("forecasts", caption, names, rows, translate("forecasts_empty", lang), lang)


def fits_table(fits: Sequence[Fit], lang: str) -> Table:
    """Return the fitted curve families."""
    none = translate("none_given", lang)
    rows = [
        (
            axis_name(fit.axis, lang),
            fit.family,
            ", ".join(f"{name} = {value:.4g}" for name, value in sorted(fit.parameters.items())),
            str(fit.num_points),
            none if fit.leave_last_out_error is None else f"{fit.leave_last_out_error:.3f}",
        )
        for fit in fits
    ]
    title, empty = translate("fits_title", lang), translate("fits_empty", lang)
    return table("fits", title, "axis family fit n error", rows, empty, lang)


def settings_table(result: StudyResult, lang: str) -> Table:
    """Return every leaf that a rule moved or the control kept; equal rows of seeds are one row."""
    rows = dict.fromkeys(
        (
            change.cell_kind,
            change.path,
            numbers.setting(change.before),
            numbers.setting(change.after),
            change.rule,
            change.evidence,
        )
        for change in result.settings
    )
    title, empty = translate("section_settings", lang), translate("settings_empty", lang)
    names = "cell_kind setting before after rule evidence"
    return table("settings", title, names, list(rows), empty, lang)


def cells_table(cells: Sequence[CellResult], lang: str) -> Table:
    """Return every cell, whatever became of it."""
    rows = [
        (
            numbers.cell_name(cell.cell),
            numbers.short_label(cell.axis_values.get("model", "")),
            cell.axis_values.get("samples_per_prompt", ""),
            str(cell.trajectory.steps[-1]) if cell.trajectory.steps else "0",
            arm_name(cell.arm, lang),
            str(cell.seed),
            state_name(cell.state, lang),
            cell.reason,
            numbers.number(cell.base_score, lang),
            numbers.number(cell.final_score, lang),
            numbers.duration(cell.seconds, lang),
            numbers.count(cell.num_tokens),
            numbers.count(cell.num_parameters),
        )
        for cell in cells
    ]
    names = "cell model samples steps arm seed state reason base final time tokens parameters"
    title, empty = translate("section_cells", lang), translate("cells_empty", lang)
    return table("cells", title, names, rows, empty, lang)


def cost_table(cells: Sequence[CellResult], lang: str) -> Table:
    """Return seconds and tokens by kind of cell, and the sum."""
    kinds: dict[tuple[str, str, str], list[CellResult]] = {}
    for cell in cells:
        values = cell.axis_values
        key = (values.get("model", ""), values.get("samples_per_prompt", ""), cell.arm)
        kinds.setdefault(key, []).append(cell)
    total = sum(cell.seconds for cell in cells)

    def row(head: Sequence[str], members: Sequence[CellResult]) -> tuple[str, ...]:
        seconds = sum(cell.seconds for cell in members)
        return (
            *head,
            str(len(members)),
            numbers.duration(seconds / len(members), lang),
            numbers.duration(seconds, lang),
            numbers.share(seconds / total if total else None, lang),
            numbers.count(sum(cell.num_tokens for cell in members)),
        )

    rows = [
        row((numbers.short_label(model), samples, arm_name(arm, lang)), members)
        for (model, samples, arm), members in kinds.items()
    ]
    if cells:
        rows.append(row((translate("all_cells", lang), "", ""), cells))
    names = "model samples arm cells cost total share tokens"
    title, empty = translate("section_cost", lang), translate("cost_empty", lang)
    return table("cost", title, names, rows, empty, lang)


def findings_table(findings: Sequence[Finding], lang: str) -> Table:
    """Return what fired, worst first, then what could not be said."""
    fired = [item for item in findings if item.outcome is Outcome.FIRED]
    silent: dict[tuple[str, str], list[Finding]] = {}
    for item in findings:
        if item.outcome is Outcome.CANNOT_SAY:
            silent.setdefault((item.detector, _needs(item, lang)), []).append(item)
    fired.sort(key=lambda item: (-item.severity, item.run, item.detector))
    rows = [
        (
            translate(f"severity_{int(item.severity)}", lang),
            f"{item.detector}: {finding_title(item, lang)}",
            numbers.cell_name(item.run) or translate("whole_study", lang),
            "" if item.onset is None else str(item.onset),
            _meaning(item, lang),
            _evidence(item, lang),
            finding_advice(item, lang),
        )
        for item in fired
    ]
    for (detector, needs), items in silent.items():
        title = f"{detector}: {finding_title(items[0], lang)}"
        where = translate("num_cells", lang, n=len(items))
        rows.append((translate("cannot_say", lang), title, where, "", needs, "", ""))
    title, empty = translate("section_findings", lang), translate("findings_empty", lang)
    names = "severity finding where onset reason evidence advice"
    return table("findings", title, names, rows, empty, lang)


def lines_table(id_: str, name: str, lines: Sequence[Line], lang: str) -> Table:
    """Return first, last, least and greatest value of every run."""
    rows = [
        (
            line.name,
            numbers.metric_value(line.values[0]),
            numbers.metric_value(line.values[-1]),
            numbers.metric_value(min(line.values)),
            numbers.metric_value(max(line.values)),
        )
        for line in lines
    ]
    caption = translate("dynamics_table", lang, name=name)
    empty = translate("dynamics_empty", lang)
    return table(f"table-{id_}", caption, "cell first last least greatest", rows, empty, lang)


def provenance_table(result: StudyResult, lang: str) -> Table:
    """Return the facts that place the numbers."""
    facts = {
        translate("study", lang): result.study,
        translate("plan", lang): result.plan_id,
        translate("created", lang): result.created,
        translate("metric", lang): result.metric,
    }
    for name, value in sorted(result.facts.items()):
        facts.update(_facts(name, value))
    title = translate("section_provenance", lang)
    return table("provenance", title, "fact value", list(facts.items()), title, lang)


def _facts(name: str, value: Any) -> dict[str, str]:
    """Return a fact as rows: one a leaf of a mapping."""
    if isinstance(value, Mapping):
        rows: dict[str, str] = {}
        for key, item in sorted(cast("Mapping[str, Any]", value).items()):
            rows.update(_facts(f"{name}.{key}", item))
        return rows
    return {name: f"{value:.6g}" if isinstance(value, float) else str(value)}


def _needs(finding: Finding, lang: str) -> str:
    if finding.needs:
        return translate("cannot_say_needs", lang, needs=", ".join(finding.needs))
    return translate(
        "cannot_say_short", lang, **{"num_points": "?", "min_points": "?"} | dict(finding.values)
    )


def _meaning(finding: Finding, lang: str) -> str:
    text = finding_text(finding, lang)
    if finding.explained_by:
        explained = translate("explained_by", lang, detector=finding.explained_by)
        return f"{text} ({explained})"
    return text


def _evidence(finding: Finding, lang: str) -> str:
    parts: list[str] = []
    for item in finding.evidence:
        text = f"{item.metric} = {item.value:.4g}"
        if item.threshold is not None:
            text += f" ({translate('limit', lang, value=f'{item.threshold:.4g}')})"
        if item.step is not None:
            text += f" {translate('at_step', lang, step=item.step)}"
        parts.append(text)
    return "; ".join(parts)
