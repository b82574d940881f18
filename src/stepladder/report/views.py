"""Charts of the report as data: points and lines from a StudyResult. Called by `model.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepladder.core.metrics import describe
from stepladder.core.result import CellResult, Curve, Interval, StudyResult
from stepladder.report import numbers
from stepladder.report.i18n import arm_name, axis_name, metric_meaning, translate
from stepladder.report.parts import (
    CostChart,
    CurveChart,
    IntervalChart,
    Line,
    LineChart,
    Point,
    PointSeries,
)
from stepladder.report.tables import (
    curve_table,
    effect_label,
    effects_table,
    forecasts_table,
    lines_table,
)

DYNAMICS: tuple[str, ...] = (
    "eval/pass@1",
    "reward_mean",
    "kl_ref",
    "entropy",
    "grad_norm",
    "length_mean",
)
"""Panels of the training section, in order."""
DURATIONS: tuple[float, ...] = (
    *(scale * value for scale in (1, 60) for value in (1, 2, 3, 5, 7, 10, 15, 20, 30, 45)),
    *(3600.0 * value for value in (1, 2, 3, 6, 12, 24, 48, 96, 192, 384)),
)
"""Round durations for a log axis, in seconds."""


def curve_chart(axis: str, curves: Sequence[Curve], lang: str) -> CurveChart:
    """Return the response curves of one axis, arms side by side."""
    metric = curves[0].metric
    name = axis_name(axis, lang)
    title = translate("curve_title", lang, metric=metric, axis=name)
    series = tuple(
        PointSeries(
            name=_series_name(curve, lang),
            role=curve.arm,
            points=tuple(
                Point(
                    x=point.ratio,
                    label=numbers.short_label(point.label),
                    y=point.score.mean,
                    low=point.score.low,
                    high=point.score.high,
                    text=_point_text(point.label, point.score, lang),
                    seeds=point.seeds,
                    note=translate("num_seeds_one", lang) if point.score.n == 1 else "",
                )
                for point in curve.points
            ),
        )
        for curve in curves
    )
    caption = translate("curve_caption", lang, most=_most(curves, lang)).strip()
    return CurveChart(
        id=f"curve-{axis}",
        title=title,
        caption=caption,
        x_title=translate("ratio_axis", lang, axis=name),
        y_title=metric,
        series=series,
        reference=_base_policies(curves, lang),
        table=curve_table(f"curve-{axis}", curves, title, lang),
    )


def trajectory_chart(result: StudyResult, lang: str) -> LineChart | None:
    """Return the base point's trajectories with the long run; None when none was measured."""
    lines: list[Line] = []
    long_seeds = 0
    for cell in result.cells:
        if cell.arm not in {"base", "long"} or not cell.trajectory.steps:
            continue
        group = arm_name(cell.arm, lang)
        if cell.arm == "long":
            long_seeds += 1
        lines.append(
            Line(
                name=numbers.cell_name(cell.cell),
                group=group,
                role=cell.arm,
                dashed=False,
                steps=cell.trajectory.steps,
                values=cell.trajectory.scores,
                tags=_tags(cell),
                bold=cell.arm == "long",
            )
        )
    if not lines:
        return None
    one = translate("num_seeds_one", lang)
    seeds = one if long_seeds == 1 else translate("num_seeds_many", lang, n=long_seeds)
    lines = [_marked(line, seeds) if line.role == "long" else line for line in lines]
    key = "trajectory_caption" if long_seeds else "trajectory_caption_alone"
    return LineChart(
        id="trajectories",
        title=translate("trajectory_title", lang, metric=result.metric),
        caption=translate(key, lang, long_seeds=seeds),
        x_title=translate("step", lang),
        y_title=result.metric,
        lines=tuple(lines),
        table=lines_table("trajectories", result.metric, lines, lang),
    )


def effects_chart(result: StudyResult, lang: str) -> IntervalChart:
    """Return every contrast against zero."""
    labels = point_labels(result.curves)
    caption = translate("effects_caption", lang, metric=result.metric)
    by_axis: dict[str, list[Point]] = {}
    for effect in result.effects:
        axis = effect.key.partition(":")[0]
        label = effect_label(effect, labels, lang)
        by_axis.setdefault(axis, []).append(_against_zero(label, effect.difference, lang))
    return IntervalChart(
        id="effects",
        title=translate("effects_title", lang),
        caption=caption,
        x_title=translate("difference", lang, metric=result.metric),
        series=tuple(
            PointSeries(name=axis_name(axis, lang), role=axis, points=tuple(points))
            for axis, points in by_axis.items()
        ),
        table=effects_table(result.effects, labels, translate("effects_title", lang), lang),
    )


def forecasts_chart(result: StudyResult, lang: str) -> IntervalChart:
    """Return the forecast gain of each axis, as it is and at equal added cost."""
    made = [item for item in result.forecasts if not item.refused]

    def label(axis: str, to: str) -> str:
        return f"{axis_name(axis, lang)}: {numbers.short_label(to)}"

    plain = [_against_zero(label(f.axis, f.to_label), f.gain, lang) for f in made]
    equal = [
        _against_zero(label(f.axis, f.to_label), f.gain_at_equal_cost, lang)
        for f in made
        if f.gain_at_equal_cost
    ]
    pairs = (("forecast_gain", "adjusted", plain), ("forecast_equal", "unadjusted", equal))
    title = translate("forecasts_title", lang)
    return IntervalChart(
        id="forecasts",
        title=title,
        caption=translate("forecasts_caption", lang, metric=result.metric),
        x_title=translate("gain_y", lang, metric=result.metric),
        series=tuple(
            PointSeries(name=translate(key, lang), role=role, points=tuple(points))
            for key, role, points in pairs
            if points
        ),
        table=forecasts_table(result.forecasts, title, lang),
    )


def cost_chart(result: StudyResult, lang: str) -> CostChart | None:
    """Return gain against seconds a run; None when no cost was measured."""
    series: list[PointSeries] = []
    for curve in result.curves:
        points = tuple(
            Point(
                x=point.seconds,
                label=point.label,
                y=point.gain.mean,
                low=point.gain.low,
                high=point.gain.high,
                text=f"{_point_text(point.label, point.gain, lang, signed=True)}"
                f"<br>{numbers.duration(point.seconds, lang)}",
            )
            for point in curve.points
            if point.seconds and point.gain.n
        )
        if points and curve.arm != "unadjusted":
            name = f"{axis_name(curve.axis, lang)}"
            series.append(PointSeries(name=name, role=curve.axis, points=points))
    if not series:
        return None
    title = translate("cost_title", lang)
    return CostChart(
        id="cost-gain",
        title=title,
        caption=translate("cost_caption", lang),
        x_title=translate("cost_x", lang),
        y_title=translate("gain_y", lang, metric=result.metric),
        ticks=_duration_ticks([point.x for one in series for point in one.points]),
        series=tuple(series),
        table=curve_table(
            "cost-gain",
            [curve for curve in result.curves if curve.arm != "unadjusted"],
            title,
            lang,
        ),
    )


def dynamics_charts(result: StudyResult, lang: str) -> tuple[LineChart, ...]:
    """Return one chart a metric with every cell in it."""
    names = dict.fromkeys((*DYNAMICS, *(n for cell in result.cells for n in cell.metrics)))
    charts: list[LineChart] = []
    for name in names:
        lines = _dynamics_lines(result, name, lang)
        if not lines:
            continue
        info = describe(name)
        id_ = "dynamics-" + "".join(c if c.isalnum() else "-" for c in name)
        unit = info.unit if info and info.unit != "1" else ""
        key = "dynamics_unit" if unit else "dynamics_caption"
        meaning = metric_meaning(name, lang) or name
        charts.append(
            LineChart(
                id=id_,
                title=name,
                caption=_sentence(translate(key, lang, meaning=meaning, unit=unit)),
                x_title=translate("step", lang),
                y_title=unit,
                lines=lines,
                table=lines_table(id_, name, lines, lang),
                filtered=True,
                noisy=not name.startswith("eval/"),
            )
        )
    return tuple(charts)


def point_labels(curves: Sequence[Curve]) -> Mapping[str, Sequence[str]]:
    """Return the labels of every axis' points."""
    found: dict[str, dict[str, None]] = {}
    for curve in curves:
        found.setdefault(curve.axis, {}).update(dict.fromkeys(p.label for p in curve.points))
    return {axis: tuple(labels) for axis, labels in found.items()}


def _dynamics_lines(result: StudyResult, name: str, lang: str) -> tuple[Line, ...]:
    base = next((cell for cell in result.cells if cell.arm == "base"), None)
    lines: list[Line] = []
    for cell in result.cells:
        steps, values = _series(cell, name, result.metric)
        if not steps:
            continue
        lines.append(
            Line(
                name=numbers.cell_name(cell.cell),
                group=_group(cell, base, lang),
                role=_role(cell, result.cells),
                dashed=cell.arm == "unadjusted",
                steps=steps,
                values=values,
                tags=_tags(cell),
                bold=cell.arm == "long",
            )
        )
    return tuple(lines)


def _series(cell: CellResult, name: str, metric: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if name == metric:
        return cell.trajectory.steps, cell.trajectory.scores
    rows = cell.metrics.get(name, ())
    return tuple(step for step, _ in rows), tuple(value for _, value in rows)


def _group(cell: CellResult, base: CellResult | None, lang: str) -> str:
    """Name a cell by what differs from the base point."""
    arm = arm_name(cell.arm, lang)
    if base is None or cell.arm in {"base", "long"}:
        return arm
    moved = [
        numbers.short_label(value) if axis == "model" else f"{axis_name(axis, lang)} {value}"
        for axis, value in cell.axis_values.items()
        if value != base.axis_values.get(axis)
    ]
    return f"{', '.join(moved)} ({arm})" if moved else arm


def _role(cell: CellResult, cells: Sequence[CellResult]) -> str:
    """Return the palette key: the base, the long run, or the how-manieth point of its axis."""
    if cell.arm in {"base", "long"}:
        return cell.arm
    axis = next((axis for axis, ratio in cell.ratios.items() if ratio != 1), "model")
    ratios = sorted({c.ratios.get(axis, 1.0) for c in cells} - {1.0})
    return f"{axis}-{ratios.index(cell.ratios.get(axis, 1.0)) % 3}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tags(cell: CellResult) -> Mapping[str, str]:
    return {
        "model": cell.axis_values.get("model", ""),
        "samples": cell.axis_values.get("samples_per_prompt", ""),
        "arm": cell.arm,
        "seed": str(cell.seed),
    }


def _marked(line: Line, seeds: str) -> Line:
    return Line(
        name=f"{line.name} ({seeds})",
        group=f"{line.group} ({seeds})",
        role=line.role,
        dashed=line.dashed,
        steps=line.steps,
        values=line.values,
        tags=line.tags,
        bold=line.bold,
    )


def _series_name(curve: Curve, lang: str) -> str:
    name = arm_name(curve.arm, lang)
    counts = {point.score.n for point in curve.points}
    if len(counts) == 1:
        return f"{name} ({translate('n_seeds', lang, n=counts.pop())})"
    return f"{name} ({translate('n_seeds', lang, n=f'{min(counts)}-{max(counts)}')})"


def _point_text(label: str, interval: Interval, lang: str, *, signed: bool = False) -> str:
    text = numbers.interval_text(interval, lang, signed=signed)
    name = numbers.short_label(label) if ":" not in label else label
    return f"{name}: {text}, {translate('n_seeds', lang, n=interval.n)}"


def _against_zero(label: str, interval: Interval, lang: str) -> Point:
    return Point(
        x=0.0,
        label=label,
        y=interval.mean,
        low=interval.low,
        high=interval.high,
        text=_point_text(label, interval, lang, signed=True),
    )


def _base_policies(curves: Sequence[Curve], lang: str) -> PointSeries | None:
    found: dict[float, Point] = {}
    for curve in curves:
        for point in curve.points:
            if point.gain.n == 0:
                continue
            label, score = numbers.short_label(point.label), point.score.mean - point.gain.mean
            text = f"{label}: {numbers.number(score, lang)}"
            found.setdefault(
                point.ratio,
                Point(x=point.ratio, label=label, y=score, low=None, high=None, text=text),
            )
    points = tuple(found[ratio] for ratio in sorted(found))
    name = translate("base_policy", lang)
    return PointSeries(name=name, role="reference", points=points) if points else None


def _duration_ticks(seconds: Sequence[float]) -> tuple[tuple[float, str], ...]:
    low, high = min(seconds) / 1.2, max(seconds) * 1.2
    inside = [value for value in DURATIONS if low <= value <= high]
    stride = -(-len(inside) // 6) or 1
    return tuple((value, numbers.duration_tick(value)) for value in inside[::stride])


def _most(curves: Sequence[Curve], lang: str) -> str:
    pairs = [(point, curve.arm) for curve in curves for point in curve.points]
    if not pairs:
        return ""
    best, arm = max(pairs, key=lambda pair: pair[0].score.mean)
    value = numbers.number(best.score.mean, lang)
    label = numbers.short_label(best.label)
    return translate("curve_most", lang, value=value, label=label, arm=arm_name(arm, lang))
