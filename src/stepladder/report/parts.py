"""The parts of a ReportModel: texts, tables and charts, all numbers already formatted.

No markup and no Plotly here. `model.py` makes them; html, terminal, markdown and charts read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table column."""

    label: str
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts; every row has one text a column."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Said in place of the table when it has no row."""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows} - {len(self.columns)}
        assert not widths, f"table {self.id}: rows of {widths} for {len(self.columns)} columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One estimate in a chart."""

    x: float
    label: str
    y: float
    low: float | None
    high: float | None
    text: str
    """What a reader sees on hovering: the formatted number, interval and n."""
    seeds: tuple[tuple[int, float], ...] = ()
    """(seed, value) of the runs behind the point."""
    note: str = ""
    """Written beside the point, such as that it has one seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSeries:
    """Estimates that belong together."""

    name: str
    role: str
    """Key of the palette: an arm, an axis, or `reference`."""
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run's values over steps; K values."""

    name: str
    group: str
    """Legend group: lines of one group share a colour and one legend entry."""
    role: str
    dashed: bool
    steps: tuple[int, ...]
    """[K]"""
    values: tuple[float, ...]
    """[K]"""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a filter picks by: model, samples, arm, seed."""
    bold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """Estimates over a ratio, with bands and raw seeds."""

    id: str
    title: str
    caption: str
    x_title: str
    y_title: str
    series: tuple[PointSeries, ...]
    reference: PointSeries | None
    """Drawn dotted: the base policies before training."""
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Values of many runs over steps."""

    id: str
    title: str
    caption: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    table: Table
    filtered: bool = False
    """Whether the page's filters hide and show its lines."""
    noisy: bool = False
    """Whether the page may draw running means: a value a step, not an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """Estimates one below the other, each with its interval, against zero."""

    id: str
    title: str
    caption: str
    x_title: str
    series: tuple[PointSeries, ...]
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CostChart:
    """Estimates over the seconds they cost."""

    id: str
    title: str
    caption: str
    x_title: str
    y_title: str
    ticks: tuple[tuple[float, str], ...]
    """(seconds, text)"""
    series: tuple[PointSeries, ...]
    table: Table


Chart = CurveChart | LineChart | IntervalChart | CostChart


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number worth a place on the first screen."""

    label: str
    value: str
    interval: str
    """Interval in words, or why there is none."""
    n: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence with its direction."""

    text: str
    sign: int
    """+1 for, -1 against, 0 open."""
    mark: str
    """The direction as one sign, so that colour is never alone."""
    word: str
    """The direction in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the report."""

    id: str
    title: str
    text: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Choices that hide and show lines of the training charts."""

    tag: str
    label: str
    choices: tuple[tuple[str, str], ...]
    """(value, label)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    """Everything a report says, in one language."""

    lang: str
    study: str
    subtitle: str
    answer: str
    """The Answer's own value, never translated."""
    answer_word: str
    answer_gloss: str
    """The answer in one sentence."""
    tone: str
    """go, stop or open: the colour's key."""
    numbers: tuple[Number, ...]
    """The first is the headline."""
    reasons: tuple[Statement, ...]
    next_spend: str
    what_would_change_it: str
    confidence: str
    caveats: tuple[str, ...]
    axes: tuple[Section, ...]
    """One per axis, in the order of the result."""
    comparison: Section
    dynamics: Section
    settings: Section
    cells: Section
    cost: Section
    findings: Section
    provenance: Section
    filters: tuple[Filter, ...]
    num_findings: int
    num_warnings: int
    """Findings above note; the table lists them first."""
    document: Mapping[str, Any]
    """What verdict.json holds."""

    @property
    def sections(self) -> tuple[Section, ...]:
        """Every section in reading order."""
        return (
            *self.axes,
            self.comparison,
            self.dynamics,
            self.settings,
            self.cells,
            self.cost,
            self.findings,
            self.provenance,
        )

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Every chart in reading order."""
        return tuple(chart for section in self.sections for chart in section.charts)
