"""The report in a terminal: the verdict first, a table an axis, at most some 45 lines."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from stepladder.report.i18n import translate
from stepladder.report.parts import CurveChart, ReportModel, Section

STYLES = {"go": "bold green", "stop": "bold red", "open": "bold yellow"}
SIGN_STYLES = {1: "green", -1: "red", 0: "yellow"}
BAR_WIDTH = 12
MAX_ROWS = 6
"""Rows of one axis; a larger study is told to read the report."""


def render(model: ReportModel, console: Console, report_path: Path | None = None) -> None:
    """Print the report; without colour when the console has none."""
    _headline(model, console)
    _statements(model, console)
    for section in model.axes:
        _axis(section, console, model.lang)
    _footer(model, console, report_path)


def _headline(model: ReportModel, console: Console) -> None:
    word = f" ({model.answer_word})" if model.lang != "en" else ""
    line = Text.assemble((f"{model.answer}{word}", STYLES[model.tone]), f"  {model.study}")
    console.print(line, soft_wrap=False)
    console.print(Text(model.answer_gloss))
    for item in model.numbers[:1]:
        details = ", ".join(part for part in (item.interval, item.n) if part)
        console.print(Text.assemble("  ", (item.value, "bold"), f"  {item.label}"), highlight=False)
        console.print(Text(f"          {details}", style="dim"))


def _statements(model: ReportModel, console: Console) -> None:
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column()
    for reason in model.reasons:
        grid.add_row(Text(reason.mark, style=SIGN_STYLES[reason.sign]), Text(reason.text))
    console.print(Padding(grid, (0, 0, 0, 2)))
    for key, text in (
        ("next_spend", model.next_spend),
        ("what_would_change_it", model.what_would_change_it),
        ("confidence", model.confidence),
    ):
        console.print(Text.assemble((f"{translate(key, model.lang)}: ", "bold"), text))
    for caveat in model.caveats[:2]:
        console.print(Text(f"! {caveat}", style="yellow"))
    if len(model.caveats) > 2:
        console.print(Text("! " + translate("more", model.lang, n=len(model.caveats) - 2)))


def _axis(section: Section, console: Console, lang: str) -> None:
    chart = section.charts[0]
    assert isinstance(chart, CurveChart), f"section {section.id} begins with its curve"
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    rows = [(series, point) for series in chart.series for point in series.points]
    highest = max((point.y for _, point in rows), default=0.0)
    for series, point in rows[:MAX_ROWS]:
        estimate = point.text.removeprefix(f"{point.label}: ")
        arm = series.name.partition(" (")[0]
        bar = _bar(point.y, highest, console)
        grid.add_row(Text(point.label), Text(arm, style="dim"), Text(bar, style="cyan"), estimate)
    console.print(Text.assemble("", (section.title, "bold"), f"  {chart.y_title}"))
    console.print(Padding(grid, (0, 0, 0, 2)))
    if len(rows) > MAX_ROWS:
        console.print(Text("  " + translate("more", lang, n=len(rows) - MAX_ROWS), style="dim"))


def _footer(model: ReportModel, console: Console, report_path: Path | None) -> None:
    worst = [row[:3] for row in model.findings.tables[0].rows][: model.num_warnings][:2]
    for severity, name, where in worst:
        console.print(Text(f"! {severity}: {name} ({where})", style="yellow"))
    if model.num_warnings > len(worst):
        more = translate("more", model.lang, n=model.num_warnings - len(worst))
        console.print(Text(f"! {more}", style="yellow"))
    notes = model.num_findings - model.num_warnings
    if notes:
        console.print(Text(translate("notes_in_report", model.lang, n=notes), style="dim"))
    console.print(Text(model.cost.text, style="dim"))
    if report_path:
        label = translate("report_at", model.lang)
        console.print(Text(f"{label}: {report_path}"), soft_wrap=True, highlight=False)


def _bar(value: float, highest: float, console: Console) -> str:
    full = "#" if console.options.ascii_only else "█"
    length = round(BAR_WIDTH * value / highest) if highest > 0 and value > 0 else 0
    return full * length + " " * (BAR_WIDTH - length)
