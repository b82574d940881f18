"""Terminal, Markdown, JSON and HTML say the same, completely and the same at every writing."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import pytest
from report.study_result import make_empty_result, make_study_result
from rich.console import Console

from stepladder.core.result import Answer, Interval, Reason
from stepladder.report.charts import PALETTE, dark_colours, figure
from stepladder.report.html import html_text, write_html
from stepladder.report.i18n import LANGS
from stepladder.report.markdown import markdown_text
from stepladder.report.model import build_report
from stepladder.report.terminal import render
from stepladder.report.verdict_json import document_text, verdict_document, write_verdict

MAX_BYTES = 6_000_000


def terminal_text(model, width: int = 80, **settings) -> str:
    buffer = io.StringIO()
    render(model, Console(file=buffer, width=width, **settings))
    return buffer.getvalue()


class Page(HTMLParser):
    """Collects what a browser would fetch, tags left open, and the visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.counts: dict[str, int] = {}
        self.lang = ""
        self.chunks: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self._hidden += tag in {"script", "style"}
        if tag == "html":
            self.lang = values["lang"]
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("src", "href", "srcset", "data", "action"):
            target = values.get(name)
            if target and not target.startswith(("#", "data:")):
                self.fetched.append(target)

    def handle_endtag(self, tag):
        self._hidden -= tag in {"script", "style"}

    def handle_data(self, data):
        if not self._hidden:
            self.chunks.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.chunks).split())


def page_of(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


@pytest.mark.parametrize("lang", LANGS)
def test_every_renderer_says_the_headline_the_reasons_and_the_next_spend(lang):
    model = build_report(make_study_result(), lang)
    outputs = {
        "terminal": terminal_text(model, width=400),
        "markdown": markdown_text(model).replace("\\", ""),
        "html": page_of(html_text(model)).text,
    }
    said = [model.answer, model.numbers[0].value, model.next_spend, model.confidence]
    said += [reason.text for reason in model.reasons]
    for name, output in outputs.items():
        flat = " ".join(output.split())
        for text in said:
            assert " ".join(text.split()) in flat, f"{name} lacks {text}"


@pytest.mark.parametrize("lang", LANGS)
def test_terminal_fits_and_has_no_colour_when_piped(lang):
    text = terminal_text(build_report(make_study_result(), lang))
    assert len(text.splitlines()) <= 45
    assert "\x1b" not in text
    assert text.startswith("GO")


def test_terminal_bars_are_ascii_where_the_console_is():
    class Ascii(io.StringIO):
        encoding = "ascii"

    buffer = Ascii()
    render(build_report(make_study_result()), Console(file=buffer, width=80))
    bars = [line for line in buffer.getvalue().splitlines() if "##" in line]
    assert bars
    assert "█" not in buffer.getvalue()


def test_terminal_markup_in_a_name_is_printed_as_it_is():
    result = dataclasses.replace(make_study_result(), study="[bold]odd[/bold] name")
    assert "[bold]odd[/bold] name" in terminal_text(build_report(result))


@pytest.mark.parametrize("lang", LANGS)
def test_page_is_one_file_that_fetches_nothing(lang):
    text = html_text(build_report(make_study_result(), lang))
    page = page_of(text)
    assert page.fetched == []
    assert "default-src 'none'" in text
    assert page.lang == {"en": "en", "zh": "zh-Hans"}[lang]
    assert len(page.ids) == len(set(page.ids))
    assert len(text.encode()) < MAX_BYTES
    assert not re.search(r"@import|url\(", text[: text.index('id="figures"')])


def test_every_chart_has_a_table_behind_it():
    model = build_report(make_study_result())
    page = page_of(html_text(model))
    for chart in model.charts:
        assert chart.table.rows, chart.id
        assert f"plot-{chart.id}" in page.ids
    assert page.counts["details"] >= len(model.charts)
    assert page.counts["table"] == page.counts["caption"]


def test_hostile_names_cannot_leave_their_place():
    evil = "</script><img src=x onerror=alert(1)>"
    result = dataclasses.replace(make_study_result(), study=evil)
    cell = dataclasses.replace(result.cells[0], cell=evil, reason=evil)
    result = dataclasses.replace(result, cells=(cell, *result.cells[1:]))
    text = html_text(build_report(result))
    assert "<img" not in text.lower().replace("plotly", "")[: text.index('id="figures"')]
    assert page_of(text).fetched == []
    assert page_of(text).counts["script"] == 4


@pytest.mark.parametrize("make", [make_study_result, make_empty_result])
def test_writing_twice_gives_the_same_bytes(make, tmp_path):
    for name in ("first", "second"):
        write_html(build_report(make()), tmp_path / name / "report.html")
        write_verdict(make(), tmp_path / name / "verdict.json")
    for name in ("report.html", "verdict.json"):
        first, second = (tmp_path / folder / name for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
    assert markdown_text(build_report(make())) == markdown_text(build_report(make()))


def test_document_keeps_every_digit_and_is_sorted():
    result = make_study_result()
    text = document_text(verdict_document(result))
    document = json.loads(text)
    assert document["schema"] == 1
    assert document["verdict"]["answer"] == "GO"
    point, told = result.curves[0].points[1], document["curves"][0]["points"][1]
    assert told["score"]["mean"] == point.score.mean
    assert [tuple(pair) for pair in told["seeds"]] == list(point.seeds)
    assert len(document["cells"]) == len(result.cells)
    assert document["cells"][0]["trajectory"]["scores"] == list(result.cells[0].trajectory.scores)
    assert document["findings"][0]["severity"] == "critical"
    assert document["non_finite"] == []
    assert text == json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def test_document_gives_reasons_by_key_and_in_words():
    reason = verdict_document(make_study_result())["verdict"]["reasons"][0]
    assert reason["key"] == "gain_enough"
    assert reason["sign"] == 1
    assert set(reason["text"]) == set(LANGS)


def test_document_lists_numbers_that_are_not_finite():
    result = make_study_result()
    effect = dataclasses.replace(
        result.effects[0], difference=Interval(mean=float("nan"), low=None, high=None, n=0)
    )
    document = verdict_document(dataclasses.replace(result, effects=(effect,)))
    assert document["effects"][0]["difference"]["mean"] is None
    assert document["non_finite"] == ["effects.0.difference.mean"]
    document_text(document)


def test_markdown_tables_survive_pipes_in_texts():
    result = make_study_result()
    verdict = dataclasses.replace(result.verdict, caveats=(Reason(key="a | b"),))
    text = markdown_text(build_report(dataclasses.replace(result, verdict=verdict)))
    assert "a \\| b" in text
    for line in text.splitlines():
        if line.startswith("| model=synthetic-x2 adjusted"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7


@pytest.mark.parametrize("answer", list(Answer))
def test_answer_is_the_first_thing_in_every_renderer(answer):
    model = build_report(make_study_result(answer))
    assert terminal_text(model).startswith(answer.value)
    assert answer.value in markdown_text(model).splitlines()[0]
    assert page_of(html_text(model)).text.index(answer.value) < 200


def test_an_empty_study_renders_everywhere():
    model = build_report(make_empty_result())
    assert "NOT ENOUGH EVIDENCE" in terminal_text(model)
    assert "NOT ENOUGH EVIDENCE" in markdown_text(model)
    assert model.charts == ()
    html_text(model)


def test_figures_stand_alone_for_notebooks():
    model = build_report(make_study_result())
    for chart in model.charts:
        drawn = figure(chart)
        assert drawn.data, chart.id
        assert json.loads(drawn.to_json())["layout"]["height"] > 100


def test_every_colour_of_a_figure_has_a_dark_counterpart():
    dark = dark_colours()
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)
    for chart in build_report(make_study_result()).charts:
        tree = figure(chart).to_json()
        tree = json.loads(tree)
        del tree["layout"]["template"]
        found = set(re.findall(r"#[0-9a-f]{6}|rgba\([^)]*\)", json.dumps(tree)))
        assert found <= {*dark, "rgba(0,0,0,0)"}, chart.id


def test_seed_marks_and_bands_are_drawn():
    chart = build_report(make_study_result()).axes[0].charts[0]
    drawn = figure(chart)
    assert sum(trace.fill == "toself" for trace in drawn.data) == 2
    seeds = [trace for trace in drawn.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in seeds) == sum(
        len(point.seeds) for series in chart.series for point in series.points
    )


def test_a_point_of_one_seed_has_a_bar_and_no_band():
    model = build_report(make_study_result())
    chart = next(c for c in model.charts if c.id == "curve-steps")
    drawn = figure(chart)
    band = next(trace for trace in drawn.data if trace.fill == "toself")
    assert max(band.x) == 1.0
    assert any(note.text == "1 seed" for note in drawn.layout.annotations)
