"""ReportModel: one study's report in one language, every number formatted once.

HTML, terminal, Markdown and JSON render this and nothing else, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from stepladder.core.finding import Outcome, Severity
from stepladder.core.result import Answer, Curve, CurvePoint, Interval, Reason, StudyResult
from stepladder.report import numbers, tables, views
from stepladder.report.i18n import arm_name, axis_name, reason_text, translate
from stepladder.report.parts import Filter, Number, ReportModel, Section, Statement
from stepladder.report.verdict_json import verdict_document

__all__ = ["ReportModel", "build_report"]

TONES = {Answer.GO: "go", Answer.NO_GO: "stop", Answer.NOT_ENOUGH: "open"}
MARKS = {1: ("+", "for"), -1: ("-", "against"), 0: ("?", "open")}


def build_report(result: StudyResult, lang: str = "en") -> ReportModel:
    """Return the report of a study in `en` or `zh`."""
    verdict = result.verdict
    answer = verdict.answer
    return ReportModel(
        lang=lang,
        study=result.study,
        subtitle=_subtitle(result, lang),
        answer=answer.value,
        answer_word=translate(f"answer_{answer.value}", lang),
        answer_gloss=translate(f"gloss_{answer.value}", lang),
        tone=TONES[answer],
        numbers=_key_numbers(result, lang),
        reasons=tuple(_statement(reason, lang) for reason in verdict.reasons),
        next_spend=reason_text(verdict.next_spend, lang),
        what_would_change_it=reason_text(verdict.what_would_change_it, lang),
        confidence=reason_text(verdict.confidence, lang),
        caveats=tuple(reason_text(reason, lang) for reason in verdict.caveats),
        axes=_axes(result, lang),
        comparison=_comparison(result, lang),
        dynamics=Section(
            id="dynamics",
            title=translate("section_dynamics", lang),
            text=translate("text_dynamics", lang),
            charts=views.dynamics_charts(result, lang),
        ),
        settings=_table_section("settings", tables.settings_table(result, lang), lang),
        cells=_table_section("cells", tables.cells_table(result.cells, lang), lang),
        cost=_cost(result, lang),
        findings=_table_section("findings", tables.findings_table(result.findings, lang), lang),
        provenance=Section(
            id="provenance",
            title=translate("section_provenance", lang),
            text=translate("text_provenance", lang),
            tables=(tables.provenance_table(result, lang), tables.fits_table(result.fits, lang)),
        ),
        filters=_filters(result, lang),
        num_findings=sum(finding.outcome is Outcome.FIRED for finding in result.findings),
        num_warnings=sum(
            finding.outcome is Outcome.FIRED and finding.severity > Severity.NOTE
            for finding in result.findings
        ),
        document=verdict_document(result),
    )


def _subtitle(result: StudyResult, lang: str) -> str:
    return translate(
        "subtitle",
        lang,
        metric=result.metric,
        cells=len(result.cells),
        seeds=len({cell.seed for cell in result.cells}),
        created=result.created,
    )


def _statement(reason: Reason, lang: str) -> Statement:
    sign = (reason.sign > 0) - (reason.sign < 0)
    mark, word = MARKS[sign]
    return Statement(
        text=reason_text(reason, lang), sign=sign, mark=mark, word=translate(word, lang)
    )


def _table_section(id_: str, table: tables.Table, lang: str) -> Section:
    title, text = translate(f"section_{id_}", lang), translate(f"text_{id_}", lang)
    return Section(id=id_, title=title, text=text, tables=(table,))


def _axes(result: StudyResult, lang: str) -> tuple[Section, ...]:
    sections: list[Section] = []
    for axis in dict.fromkeys(curve.axis for curve in result.curves):
        curves = [curve for curve in result.curves if curve.axis == axis and curve.points]
        if not curves:
            continue
        charts = [views.curve_chart(axis, curves, lang)]
        trajectories = views.trajectory_chart(result, lang) if axis == "steps" else None
        known = axis in {"model", "samples_per_prompt", "steps"}
        sections.append(
            Section(
                id=f"axis-{axis}",
                title=translate("section_axis", lang, axis=axis_name(axis, lang)),
                text=translate(f"axis_text_{axis if known else 'other'}", lang),
                charts=(*charts, trajectories) if trajectories else tuple(charts),
            )
        )
    return tuple(sections)


def _comparison(result: StudyResult, lang: str) -> Section:
    charts = (views.effects_chart(result, lang), views.forecasts_chart(result, lang))
    drawn = tuple(chart for chart in charts if any(series.points for series in chart.series))
    return Section(
        id="comparison",
        title=translate("section_comparison", lang),
        text=translate("text_comparison", lang),
        charts=drawn,
        tables=tuple(chart.table for chart in charts if chart not in drawn),
    )


def _cost(result: StudyResult, lang: str) -> Section:
    chart = views.cost_chart(result, lang)
    total = sum(cell.seconds for cell in result.cells)
    wall = result.facts.get("wall_s")
    spent = ""
    if isinstance(wall, int | float):
        spent = translate("text_cost_wall", lang, wall=numbers.duration(wall, lang))
    text = translate(
        "text_cost",
        lang,
        total=numbers.duration(total, lang),
        cells=len(result.cells),
        tokens=numbers.count(sum(cell.num_tokens for cell in result.cells)),
        wall=spent,
    )
    return Section(
        id="cost",
        title=translate("section_cost", lang),
        text=text,
        charts=(chart,) if chart else (),
        tables=(tables.cost_table(result.cells, lang),),
    )


def _filters(result: StudyResult, lang: str) -> tuple[Filter, ...]:
    def choices(tag: str, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
        namer = {"arm": partial(arm_name, lang=lang), "model": numbers.short_label}.get(tag, str)
        named = [(value, namer(value)) for value in dict.fromkeys(values)]
        return tuple(named)

    cells = result.cells
    by_tag = {
        "model": [cell.axis_values.get("model", "") for cell in cells],
        "samples": [cell.axis_values.get("samples_per_prompt", "") for cell in cells],
        "arm": [cell.arm for cell in cells],
        "seed": [str(cell.seed) for cell in cells],
    }
    return tuple(
        Filter(tag=tag, label=translate(f"filter_{tag}", lang), choices=choices(tag, values))
        for tag, values in by_tag.items()
    )


def _key_numbers(result: StudyResult, lang: str) -> tuple[Number, ...]:
    """Return the headline, then what stands beside it; empty when nothing was measured."""
    target = str(result.facts.get("target_axis", "model"))
    curve = _main_curve(result.curves, target)
    if curve is None:
        return ()
    top = max(curve.points, key=lambda point: point.ratio)
    arm = arm_name(curve.arm, lang)
    name = numbers.short_label(top.label)
    label = translate("number_gain", lang, label=name, arm=arm)
    found = [_number(label, top.gain, lang, signed=True)]
    label = translate("number_score", lang, metric=result.metric, label=name, arm=arm)
    found.append(_number(label, top.score, lang))
    found.extend(_climb(result, curve, top, lang))
    for forecast in result.forecasts:
        if forecast.axis == target and not forecast.refused:
            axis, to = axis_name(target, lang), numbers.short_label(forecast.to_label)
            label = translate("number_forecast", lang, axis=axis, label=to)
            found.append(_number(label, forecast.gain, lang, signed=True))
    return tuple(found)


def _climb(result: StudyResult, curve: Curve, top: CurvePoint, lang: str) -> Sequence[Number]:
    base = min(curve.points, key=lambda point: abs(point.ratio - 1))
    stem = f"{curve.axis}:{top.label}-{base.label}"
    effect = next((e for e in result.effects if e.key in {stem, f"{stem}:{curve.arm}"}), None)
    if effect is None:
        return ()
    name = axis_name(curve.axis, lang)
    first, second = numbers.short_label(top.label), numbers.short_label(base.label)
    label = translate("number_climb", lang, label=first, base=second, axis=name)
    return (_number(label, effect.difference, lang, signed=True),)


def _main_curve(curves: Sequence[Curve], axis: str) -> Curve | None:
    """Return the target axis' curve: the adjusted arm before others; any axis when it has none."""
    measured = [curve for curve in curves if curve.points]
    ranked = sorted(
        measured, key=lambda curve: (curve.axis != axis, curve.arm == "unadjusted", curve.arm)
    )
    return ranked[0] if ranked else None


def _number(label: str, interval: Interval, lang: str, *, signed: bool = False) -> Number:
    n = translate("n_seeds", lang, n=interval.n)
    if interval.low is None:
        one = interval.n == 1
        words = translate("n_one", lang) if one else translate("no_interval", lang)
        n = "" if one else n
    else:
        bounds = numbers.bounds_text(interval, lang, signed=signed)
        level = numbers.share(interval.level, lang)
        words = translate("interval_words", lang, level=level, bounds=bounds)
    return Number(
        label=label, value=numbers.mean_text(interval, lang, signed=signed), interval=words, n=n
    )
