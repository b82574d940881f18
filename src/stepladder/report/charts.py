"""Plotly figures from the chart parts of a ReportModel: the same in the report and in a notebook.

    from stepladder.report.charts import figure
    figure(build_report(result).charts[0]).show()

Figures are drawn in light colours; `DARK` maps each colour to its counterpart on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from stepladder.report.parts import (
    Chart,
    CostChart,
    CurveChart,
    IntervalChart,
    Line,
    LineChart,
    Point,
    PointSeries,
)

# Okabe and Ito's colour-blind-safe hues, darkened for 3:1 on white and lightened for dark pages.
PALETTE: Mapping[str, tuple[str, str]] = {
    "reference": ("#6b7280", "#9ca3af"),
    "base": ("#374151", "#d1d5db"),
    "adjusted": ("#0072b2", "#5cb8f0"),
    "unadjusted": ("#c44f00", "#ff9a4d"),
    "long": ("#a3427a", "#e79cc6"),
    "model": ("#0072b3", "#5cb8f1"),
    "samples_per_prompt": ("#a06400", "#f0b429"),
    "steps": ("#00795b", "#3fd0a4"),
    "model-0": ("#0072b4", "#5cb8f2"),
    "model-1": ("#6a4bc4", "#b6a1f7"),
    "model-2": ("#00457a", "#a8dcff"),
    "samples_per_prompt-0": ("#b88600", "#f0b42a"),
    "samples_per_prompt-1": ("#00795c", "#3fd0a5"),
    "samples_per_prompt-2": ("#7a4b00", "#ffd98a"),
}
TEXT, GRID, ZERO = ("#1f2937", "#e5e7eb"), ("#e2e5ea", "#343a46"), ("#9aa1ac", "#6b7485")
BAND_OPACITY = 0.16
SYMBOLS = {"unadjusted": "diamond", "long": "square", "samples_per_prompt": "diamond"}
SYMBOLS |= {"steps": "square"}
ROW, ROW_FRAME = 42, 110
"""Pixels of one row of an interval chart, and of its frame; the page makes rows higher on phones."""
DOUBLING = 0.035
"""Sideways distance of neighbouring raw seeds, in doublings."""


def figure(chart: Chart) -> go.Figure:
    """Return the figure of any chart part."""
    match chart:
        case CurveChart():
            return curve_figure(chart)
        case LineChart():
            return line_figure(chart)
        case IntervalChart():
            return interval_figure(chart)
        case CostChart():
            return cost_figure(chart)


def curve_figure(chart: CurveChart) -> go.Figure:
    """Return response curves with bands, raw seeds and the base policy."""
    drawn = _figure(chart.x_title, chart.y_title)
    if chart.reference:
        points = chart.reference.points
        drawn.add_scatter(
            x=[point.x for point in points],
            y=[point.y for point in points],
            text=[point.text for point in points],
            name=chart.reference.name,
            mode="lines+markers",
            line={"color": _colour("reference"), "dash": "dot", "width": 2},
            marker={"size": 5},
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    for series in chart.series:
        for run in _runs_with_interval(series.points):
            _add_band(drawn, series, run)
    for series in chart.series:
        _add_seeds(drawn, series)
        _add_means(drawn, series)
    ticks = {point.x: point.label for series in chart.series for point in series.points}
    values = sorted(ticks)
    drawn.update_xaxes(
        type="log",
        tickvals=values,
        ticktext=[_tick(ticks[value], value) for value in values],
        range=[math.log10(values[0] / 1.25), math.log10(values[-1] * 1.25)],
    )
    return drawn


def line_figure(chart: LineChart) -> go.Figure:
    """Return one line a run; a legend entry hides or shows its whole group."""
    drawn = _figure(chart.x_title, chart.y_title, height=320 if chart.filtered else 420)
    named: set[str] = set()
    for line in chart.lines:
        drawn.add_scatter(
            x=list(line.steps),
            y=[_short(value) for value in line.values],
            name=line.group,
            legendgroup=line.group,
            showlegend=line.group not in named,
            mode="lines",
            opacity=1.0 if line.bold else 0.8,
            line={
                "color": _colour(line.role),
                "width": 2.2 if line.bold else 1.4,
                "dash": "dash" if line.dashed else "solid",
            },
            meta=dict(line.tags),
            hovertemplate=f"{line.name}<br>%{{x}}: %{{y:.4g}}<extra></extra>",
        )
        named.add(line.group)
    _label_bold(drawn, chart.lines if not chart.filtered else ())
    drawn.update_layout(meta={"noisy": chart.noisy})
    drawn.update_xaxes(rangemode="tozero")
    return drawn


def interval_figure(chart: IntervalChart) -> go.Figure:
    """Return estimates one below the other, with intervals, against zero."""
    labels = list(dict.fromkeys(p.label for series in chart.series for p in series.points))
    several = len(chart.series) > 1 and len(labels) < sum(len(s.points) for s in chart.series)
    row = ROW * (1.4 if several else 1)
    drawn = _figure(chart.x_title, "", height=round(ROW_FRAME + row * max(1, len(labels))))
    for index, series in enumerate(chart.series):
        # Two series on the same rows stand a little apart.
        shift = (index - (len(chart.series) - 1) / 2) * 0.22 if several else 0.0
        points = series.points
        drawn.add_scatter(
            x=[point.y for point in points],
            y=[labels.index(point.label) + shift for point in points],
            error_x=_errors(points, _colour(series.role), width=5),
            text=[point.text for point in points],
            name=series.name,
            mode="markers",
            marker={
                "color": _colour(series.role),
                "size": 10,
                "symbol": SYMBOLS.get(series.role, "circle"),
            },
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    drawn.add_vline(x=0, line={"color": ZERO[0], "width": 1.5})
    drawn.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=[_wrapped(label) for label in labels],
        range=[len(labels) - 0.4, -0.6],
        showgrid=False,
        zeroline=False,
        automargin=True,
        title=None,
    )
    drawn.update_layout(showlegend=several)
    return drawn


def cost_figure(chart: CostChart) -> go.Figure:
    """Return gains against the seconds that they cost."""
    drawn = _figure(chart.x_title, chart.y_title)
    for series in chart.series:
        points = series.points
        drawn.add_scatter(
            x=[point.x for point in points],
            y=[point.y for point in points],
            error_y=_errors(points, _colour(series.role)),
            text=[point.text for point in points],
            name=series.name,
            mode="lines+markers",
            line={"color": _colour(series.role), "width": 1.5, "dash": "dot"},
            marker={"size": 10, "symbol": SYMBOLS.get(series.role, "circle")},
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    seconds = [point.x for series in chart.series for point in series.points]
    drawn.update_xaxes(
        type="log",
        tickvals=[value for value, _ in chart.ticks],
        ticktext=[text for _, text in chart.ticks],
        range=[math.log10(min(seconds) / 1.15), math.log10(max(seconds) * 1.15)],
    )
    return drawn


def dark_colours() -> dict[str, str]:
    """Return light colour -> dark colour for everything that `figure` draws."""
    pairs = [*PALETTE.values(), TEXT, GRID, ZERO]
    solid = dict(pairs)
    return solid | {_faded(light): _faded(dark) for light, dark in PALETTE.values()}


def _figure(x_title: str, y_title: str, height: int = 420) -> go.Figure:
    axis: dict[str, Any] = {
        "gridcolor": GRID[0],
        "zerolinecolor": GRID[0],
        "linecolor": GRID[0],
        "automargin": True,
    }
    layout = go.Layout(
        template="none",
        height=height,
        margin={"l": 56, "r": 12, "t": 12, "b": 48},
        font={"color": TEXT[0], "size": 13, "family": "system-ui, sans-serif"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis={**axis, "title": {"text": x_title, "standoff": 12, "font": {"size": 13}}},
        yaxis={**axis, "title": {"text": y_title, "standoff": 8, "font": {"size": 13}}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        hovermode="closest",
        hoverlabel={"align": "left"},
    )
    return go.Figure(layout=layout)


def _add_band(drawn: go.Figure, series: PointSeries, run: Sequence[Point]) -> None:
    xs = [point.x for point in run]
    lows, highs = [point.low for point in run], [point.high for point in run]
    drawn.add_scatter(
        x=xs + xs[::-1],
        y=highs + lows[::-1],
        fill="toself",
        fillcolor=_faded(_colour(series.role)),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=series.name,
        showlegend=False,
    )


def _add_seeds(drawn: go.Figure, series: PointSeries) -> None:
    xs: list[float] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for point in series.points:
        middle = (len(point.seeds) - 1) / 2
        for index, (seed, value) in enumerate(point.seeds):
            xs.append(point.x * 2 ** ((index - middle) * DOUBLING))
            ys.append(_short(value))
            texts.append(f"{point.label}, seed {seed}: {value:.3f}")
    drawn.add_scatter(
        x=xs,
        y=ys,
        text=texts,
        mode="markers",
        marker={
            "symbol": _symbol(series.role, hollow=True),
            "size": 7,
            "color": _colour(series.role),
        },
        hovertemplate="%{text}<extra></extra>",
        legendgroup=series.name,
        showlegend=False,
    )


def _add_means(drawn: go.Figure, series: PointSeries) -> None:
    colour = _colour(series.role)
    points = series.points
    drawn.add_scatter(
        x=[point.x for point in points],
        y=[point.y for point in points],
        error_y=_errors(points, colour),
        text=[point.text for point in points],
        name=series.name,
        legendgroup=series.name,
        mode="lines+markers",
        line={"color": colour, "width": 2.5},
        marker={
            "size": 9,
            "symbol": [_symbol(series.role, hollow=bool(point.note)) for point in points],
            "line": {"color": colour, "width": 0},
        },
        hovertemplate="%{text}<extra>%{fullData.name}</extra>",
    )
    for point in points:
        if point.note:
            drawn.add_annotation(
                x=math.log10(point.x),
                y=point.y,
                text=point.note,
                showarrow=False,
                xanchor="right",
                xshift=-10,
                yshift=8,
                font={"color": colour},
            )


def _symbol(role: str, *, hollow: bool) -> str:
    return SYMBOLS.get(role, "circle") + ("-open" if hollow else "")


def _label_bold(drawn: go.Figure, lines: Sequence[Line]) -> None:
    """Write a bold line's group at its end, so that a single run is never taken for a mean."""
    for line in lines:
        if line.bold:
            drawn.add_annotation(
                x=line.steps[-1],
                y=max(line.values[-(len(line.values) // 3 or 1) :]),
                text=line.group,
                showarrow=False,
                xanchor="right",
                yshift=16,
                font={"color": _colour(line.role)},
            )


def _runs_with_interval(points: Sequence[Point]) -> list[list[Point]]:
    """Return the stretches of neighbouring points with an interval of their own seeds.

    A point of one seed borrows its spread: it keeps its bar and its note, and has no band.
    """
    runs: list[list[Point]] = [[]]
    for point in points:
        if point.low is None or point.high is None or point.note:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if len(run) > 1]


def _errors(points: Sequence[Point], colour: str, width: int = 4) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if p.high is None else p.high - p.y for p in points],
        "arrayminus": [0 if p.low is None else p.y - p.low for p in points],
        "color": colour,
        "thickness": 1.5,
        "width": width,
    }


def _tick(label: str, ratio: float) -> str:
    times = f"\u00d7{ratio:g}"
    return f"{label}<br>{times}" if label != f"{ratio:g}" else times


def _wrapped(label: str) -> str:
    head, _, rest = label.partition(": ")
    return f"{head}:<br>{rest}" if rest else label


def _colour(role: str) -> str:
    return PALETTE.get(role, PALETTE["base"])[0]


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


def _short(value: float) -> float | None:
    """Six digits are more than a screen shows and keep the file small; NaN leaves a gap."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
