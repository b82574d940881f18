"""The report in a real browser: charts drawn, nothing fetched, no complaint, fits a phone."""

from __future__ import annotations

import pytest
from report.browser import Browser, find_browser
from report.study_result import make_study_result

from stepladder.report.html import write_html
from stepladder.report.i18n import LANGS
from stepladder.report.model import build_report

PROGRAM = find_browser()
pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine"),
]
STATE = "Object.assign({}, document.documentElement.dataset)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(str(PROGRAM), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for lang in LANGS:
        write_html(build_report(make_study_result(), lang), folder / f"{lang}.html")
    return folder


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height", "phone"), [(1280, 900, False), (390, 844, True)])
def test_report_draws_fits_and_stays_offline(browser, pages, lang, dark, width, height, phone):
    browser.events.clear()
    browser.view(width, height, dark=dark, phone=phone)
    browser.open(pages / f"{lang}.html")
    state = browser.value(STATE)
    expected = len(build_report(make_study_result(), lang).charts)
    assert state["chartsDrawn"] == state["chartsExpected"] == str(expected)
    assert state["errors"] == ""
    assert state["overflow"] == "0"
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.requests() == []
    assert browser.complaints() == []


def test_verdict_is_on_the_first_screen(browser, pages):
    browser.view(1280, 800)
    browser.open(pages / "en.html")
    bottom = "document.querySelector('#verdict .next').getBoundingClientRect().bottom"
    assert browser.value(bottom) < 800


def test_dark_page_has_light_text_in_charts(browser, pages):
    fills = {}
    for dark in (False, True):
        browser.view(1280, 900, dark=dark)
        browser.open(pages / "en.html")
        fills[dark] = browser.value(
            "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
        )
    assert fills == {False: "rgb(31, 41, 55)", True: "rgb(229, 231, 235)"}


def test_scheme_change_redraws_without_reload(browser, pages):
    browser.view(1280, 900, dark=False)
    browser.open(pages / "en.html")
    browser.view(1280, 900, dark=True)
    tick = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    wait = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))"
    browser.value(wait)
    assert browser.value(tick) == "rgb(229, 231, 235)"


def test_filters_hide_lines_by_keyboard(browser, pages):
    browser.view(1280, 900)
    browser.open(pages / "en.html")
    shown = (
        "document.getElementById('plot-dynamics-reward-mean').data"
        ".filter((trace) => trace.visible).length"
    )
    before = browser.value(shown)
    browser.value("document.querySelector('[data-tag=seed] input[value=\"2\"]').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=" ",
            code="Space",
            text=" ",
            windowsVirtualKeyCode=32,
        )
    assert before == 22
    assert browser.value(shown) == 15


def test_running_mean_can_be_switched_off(browser, pages):
    browser.view(1280, 900)
    browser.open(pages / "en.html")
    first = "document.getElementById('plot-dynamics-grad_norm'.replace('_', '-')).data[0].y[50]"
    smooth = browser.value(first)
    browser.value("document.getElementById('smooth').click()")
    raw = browser.value(first)
    recorded = dict(make_study_result().cells[0].metrics["grad_norm"])[51]
    assert raw == pytest.approx(recorded, rel=1e-5)
    assert smooth != raw


def test_every_value_is_in_a_table(browser, pages):
    browser.view(1280, 900)
    browser.open(pages / "en.html")
    details = "document.querySelector('details.values[data-figure=dynamics-entropy]')"
    browser.value(f"{details}.open = true")
    browser.value("new Promise((done) => setTimeout(done, 0))")
    rows = browser.value(f"{details}.querySelectorAll('tbody tr').length")
    assert rows == 240
