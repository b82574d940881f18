"""The report model: every number formatted once, in both languages, whatever the study lacks."""

from __future__ import annotations

import dataclasses
import re
import string

import pytest
from report.study_result import (
    make_empty_result,
    make_study_result,
    make_unknown_verdict,
)

from stepladder.core.finding import Finding, Outcome
from stepladder.core.result import Answer, Interval
from stepladder.report import numbers
from stepladder.report.finding_texts import CAUSES, FINDINGS
from stepladder.report.i18n import LANGS, finding_text, finding_title, translate
from stepladder.report.model import build_report
from stepladder.report.texts import TEXTS


def all_texts(value) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return []
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in all_texts(getattr(value, f.name))]
    if isinstance(value, tuple):
        return [text for item in value for text in all_texts(item)]
    return []


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("make", [make_study_result, make_empty_result])
def test_no_text_has_an_unfilled_place_or_a_nan(lang, make):
    for text in all_texts(build_report(make(), lang)):
        assert not re.search(r"\{\w*\}", text), text
        assert "nan" not in text.split(), text
        assert "None" not in text, text


@pytest.mark.parametrize("answer", list(Answer))
def test_answer_is_said_in_its_own_word_and_in_the_language(answer):
    english, chinese = (build_report(make_study_result(answer), lang) for lang in LANGS)
    assert english.answer == chinese.answer == answer.value
    assert english.answer_word != chinese.answer_word


def test_headline_is_the_gain_at_the_largest_point_with_interval_and_n():
    result = make_study_result()
    top = result.curves[0].points[-1]
    headline = build_report(result).numbers[0]
    assert headline.value == f"{top.gain.mean:+.3f}"
    assert f"[{top.gain.low:+.3f}, {top.gain.high:+.3f}]" in headline.interval
    assert headline.n == "n = 3"


def test_headline_follows_the_target_axis():
    result = make_study_result()
    other = dataclasses.replace(result, facts={"target_axis": "samples_per_prompt"})
    assert "16" in build_report(other).numbers[0].label


def test_nothing_measured_is_said_and_never_zero():
    nothing = Interval(mean=0.0, low=None, high=None, n=0)
    assert numbers.interval_text(nothing, "en", signed=True) == "not measured"
    assert numbers.mean_text(nothing, "en") == "not measured"
    assert numbers.number(float("nan"), "en") == "not measured"
    assert numbers.number(None, "zh") == "未测量"


def test_one_seed_without_interval_says_so():
    assert numbers.interval_text(Interval(mean=0.5, low=None, high=None, n=1), "en") == (
        "0.500 (no interval)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min 00 s"),
        (60.4, "1 min 00 s"),
        (61.0, "1 min 01 s"),
        (3599.9, "1 h 00 min"),
        (7325.0, "2 h 02 min"),
        (None, "not measured"),
    ],
)
def test_durations(seconds, text):
    assert numbers.duration(seconds, "en") == text


def test_signed_zero_has_no_minus():
    assert numbers.number(-0.0001, "en", signed=True) == "+0.000"
    assert numbers.number(-0.0001, "en") == "0.000"


def test_cell_names_lose_their_hash_only():
    assert numbers.cell_name("ladder-x2-adjusted-s1-0123456789ab") == "ladder-x2-adjusted-s1"
    assert numbers.cell_name("my-own-cell") == "my-own-cell"


def test_labels_of_folders_are_their_names():
    assert numbers.short_label("/home/someone/models/tiny/") == "tiny"
    assert numbers.short_label("ladder-x2") == "ladder-x2"


def test_long_run_is_marked_as_one_seed():
    model = build_report(make_study_result())
    steps = next(s for s in model.axes if s.id == "axis-steps")
    curve, trajectories = steps.charts
    assert curve.series[0].points[-1].note == "1 seed"
    assert "1 seed" in trajectories.caption
    assert [line.group for line in trajectories.lines if line.bold] == ["long run (1 seed)"]


def test_every_cell_has_a_line_in_every_training_chart():
    result = make_study_result()
    charts = build_report(result).dynamics.charts
    assert [chart.title for chart in charts] == [
        "eval/pass@1",
        "reward_mean",
        "kl_ref",
        "entropy",
        "grad_norm",
        "length_mean",
    ]
    assert {len(chart.lines) for chart in charts} == {len(result.cells)}


def test_both_arms_stand_in_the_model_chart():
    chart = build_report(make_study_result()).axes[0].charts[0]
    assert [series.role for series in chart.series] == ["adjusted", "unadjusted"]


def test_stopped_cell_shows_state_reason_and_no_score():
    table = build_report(make_study_result()).cells.tables[0]
    row = next(row for row in table.rows if "stopped" in row)
    assert "validation" in row[row.index("stopped") + 1]
    assert "not measured" in row


def test_settings_show_what_moved_and_what_the_control_kept():
    rows = build_report(make_study_result()).settings.tables[0].rows
    assert ("model=synthetic-x2 adjusted", "kl.coef", "0.02", "0.01") in {row[:4] for row in rows}
    assert ("model=synthetic-x2 unadjusted", "kl.coef", "0.02", "0.02") in {row[:4] for row in rows}


def test_refused_forecast_gives_its_reason_and_no_number():
    model = build_report(make_study_result())
    table = next(c.table for c in model.comparison.charts if c.id == "forecasts")
    row = table.rows[-1]
    assert row[3] == "not available"
    assert row[-1].startswith("No forecast")


def test_effects_are_named_in_words():
    model = build_report(make_study_result())
    table = next(c.table for c in model.comparison.charts if c.id == "effects")
    names = [row[0] for row in table.rows]
    assert "model size: synthetic-x4 minus synthetic-x1 (adjusted)" in names
    assert "model size: adjusted minus unadjusted at synthetic-x4" in names
    assert "samples per prompt: 16 minus 8" in names


def test_findings_count_what_fired_and_group_what_cannot_say():
    model = build_report(make_study_result())
    rows = model.findings.tables[0].rows
    assert model.num_findings == 1
    assert rows[0][:2] == ("critical", "R1: reward collapse")
    assert rows[1][2] == "2 cells"
    assert "truncated_share" in rows[1][4]


def test_unknown_keys_are_shown_with_their_values():
    result = dataclasses.replace(make_study_result(), verdict=make_unknown_verdict())
    model = build_report(result)
    assert model.reasons[0].text == "synthetic_key: gain = 0.381, n = 3"
    # A known key whose values are missing is shown, not hidden behind an error.
    assert model.confidence == "gain_enough: gain = 0.5"
    unknown = Finding(detector="X9", outcome=Outcome.FIRED, key="X9", values={"a": 1.5})
    assert finding_text(unknown, "en") == "X9: a = 1.5"
    assert finding_title(unknown, "en") == "X9"


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("key", sorted(TEXTS))
def test_both_languages_of_a_text_take_the_same_values(key):
    english, chinese = TEXTS[key]
    extra = {"dynamics_unit": set(), "dynamics_caption": set()}
    assert places(english) - places(chinese) <= extra.get(key, set())
    assert places(chinese) <= places(english)
    assert english
    assert chinese


def test_catalogue_of_findings_is_complete_in_both_languages():
    assert {"R1", "K1", "E1", "G1", "L2", "Z1", "validation"} <= set(FINDINGS)
    pairs = [pair for entry in FINDINGS.values() for pair in entry] + list(CAUSES.values())
    assert all(len(pair) == 2 and all(pair) for pair in pairs)


def test_unknown_report_key_is_our_fault_and_raises():
    with pytest.raises(KeyError):
        translate("no such key", "en")
