"""report.md: a ReportModel as Markdown for pull requests. Same numbers and texts as report.html."""

from __future__ import annotations

from pathlib import Path

from stepladder.report.i18n import translate
from stepladder.report.parts import ReportModel, Section, Table


def write_markdown(model: ReportModel, path: Path) -> None:
    """Write the report to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown_text(model), encoding="utf-8")


def markdown_text(model: ReportModel) -> str:
    """Return the report: the verdict open, every table folded away."""
    lang = model.lang
    lines = [f"## {_escaped(model.study)}: **{model.answer}**", "", model.answer_gloss, ""]
    for item in model.numbers:
        details = ", ".join(part for part in (item.interval, item.n) if part)
        lines.append(f"- {_escaped(item.label)}: **{item.value}** ({details.strip('()')})")
    lines += ["", f"### {translate('reasons', lang)}", ""]
    for index, reason in enumerate(model.reasons, start=1):
        lines.append(f"{index}. ({reason.word}) {_escaped(reason.text)}")
    for key, text in (
        ("next_spend", model.next_spend),
        ("what_would_change_it", model.what_would_change_it),
        ("confidence", model.confidence),
    ):
        lines += ["", f"**{translate(key, lang)}**: {_escaped(text)}"]
    if model.caveats:
        lines += ["", f"**{translate('caveats', lang)}**", ""]
        lines += [f"- {_escaped(caveat)}" for caveat in model.caveats]
    lines += ["", _escaped(model.subtitle), ""]
    for section in model.sections:
        if section is not model.dynamics:
            lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> list[str]:
    parts = [chart.table for chart in section.charts] + list(section.tables)
    lines = [f"<details><summary>{_escaped(section.title)}</summary>", "", section.text, ""]
    for part in parts:
        lines += [*_table(part), ""]
    return [*lines, "</details>", ""]


def _table(part: Table) -> list[str]:
    if not part.rows:
        return [f"_{part.empty}_"]
    rule = ["---:" if column.numeric else "---" for column in part.columns]
    rows = [[column.label for column in part.columns], rule, *part.rows]
    lines = [
        f"| {' | '.join(cell if row is rule else _escaped(cell) for cell in row)} |" for row in rows
    ]
    return [f"**{_escaped(part.caption)}**", "", *lines]


def _escaped(text: str) -> str:
    for sign in ("\\", "|", "<", "*", "_", "`"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
