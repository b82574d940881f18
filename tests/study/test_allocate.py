from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from study.decision_cases import make_cell, make_cells, make_plan

from stepladder.core.result import CellResult, Forecast, Interval
from stepladder.study.allocate import Z95, choice_of, error_of
from stepladder.study.analyse import analyse


def forecasts(cells: list[CellResult], **plan: Any) -> dict[str, Forecast]:
    return {f.axis: f for f in analyse(make_plan(**plan), cells, []).forecasts}


def test_every_axis_is_forecast_from_its_last_point():
    found = forecasts(make_cells())
    labels = {axis: (f.from_label, f.to_label) for axis, f in found.items()}
    assert labels == {
        "model": ("ladder-x4", "2x ladder-x4"),
        "samples_per_prompt": ("16", "32"),
        "steps": ("2", "4"),
    }
    assert not any(f.refused for f in found.values())
    assert sum(f.probability_best or 0 for f in found.values()) == pytest.approx(1)


def test_line_through_the_sizes_gives_the_gain():
    gain = forecasts(make_cells())["model"].gain
    assert gain.mean == pytest.approx(0.06, abs=0.01)
    assert gain.low is not None
    assert gain.low > 0


def test_added_cost_is_that_of_the_doubling():
    found = forecasts(make_cells())
    # Seconds of the cases: 10 x samples ratio x steps ratio x (1 + model ratio) / 2.
    assert found["model"].added_cost_s == pytest.approx(20)
    assert found["samples_per_prompt"].added_cost_s == pytest.approx(20)
    assert found["steps"].added_cost_s == pytest.approx(20)


def test_dearer_axis_gets_less_at_equal_cost():
    cells = [
        replace(c, seconds=c.seconds * 4) if c.axis_values["model"] == "ladder-x4" else c
        for c in make_cells()
    ]
    found = forecasts(cells)["model"]
    assert found.gain_at_equal_cost is not None
    assert found.added_cost_s is not None
    share = math.log2(1 + 20 / found.added_cost_s)
    assert found.gain_at_equal_cost.mean == pytest.approx(found.gain.mean * share)
    assert share < 0.5


def test_two_points_are_refused():
    found = forecasts(make_cells(without=["x4", "x4u"]))["model"]
    assert found.refused == "refused_points"
    assert (found.gain.n, found.gain_at_equal_cost, found.probability_best) == (0, None, None)


def test_one_run_cannot_forecast_steps():
    cells = [make_cell(1, 0.6)]
    assert forecasts(cells)["steps"].refused == "refused_seeds"


def test_gain_stops_at_a_score_of_one():
    found = forecasts(make_cells(base=0.80, x2=0.90, x4=0.98))["model"]
    assert found.gain.high is not None
    assert found.gain.high <= 0.0201 + 0.01


def test_long_run_replaces_the_short_run_of_its_seed():
    fits = {f.axis: f for f in analyse(make_plan(), make_cells(), []).fits}
    # Two base runs with evaluations at 20..100 and one long one at 20..200.
    assert fits["steps"].num_points == 5 + 5 + 10
    assert fits["model"].num_points == 9


def make_forecast(axis: str, mean: float, half: float, p_best: float) -> Forecast:
    gain = Interval(mean=mean, low=mean - half, high=mean + half, n=9)
    return Forecast(
        axis=axis,
        from_label="1",
        to_label="2",
        gain=gain,
        added_cost_s=1.0,
        gain_at_equal_cost=gain,
        probability_best=p_best,
    )


def test_choice_needs_probability_and_no_real_regret():
    clear = choice_of([make_forecast("model", 0.1, 0.01, 0.99), make_forecast("steps", 0, 0.01, 0)])
    assert clear is not None
    assert clear.decided
    assert clear.best.axis == "model"
    wide = choice_of(
        [make_forecast("model", 0.1, 0.2, 0.81), make_forecast("steps", 0.0, 0.01, 0.19)]
    )
    assert wide is not None
    assert not wide.decided
    assert choice_of([make_forecast("model", 0.1, 0.01, 1.0)]) is None


def test_error_is_read_from_the_interval():
    assert error_of(Interval(mean=0.0, low=-Z95, high=Z95, n=3)) == pytest.approx(1)


def test_best_axis_is_recommended_when_it_leads_clearly():
    cells = make_cells(x2=0.72, x4=0.84, x2u=0.70, x4u=0.8, g4=0.60, g16=0.60, noise=0.3)
    found = analyse(make_plan(), cells, [])
    best = {f.axis: f.probability_best for f in found.forecasts}
    assert found.verdict.next_spend.key == "spend_axis"
    assert found.verdict.next_spend.values["axis"] == "model"
    assert (best["model"] or 0) >= 0.8


def test_close_axes_are_left_undecided():
    cells = make_cells(g4=0.54, g16=0.66, noise=1.5)
    found = analyse(make_plan(), cells, []).verdict
    assert found.next_spend.key in {"spend_undecided", "spend_tie"}


def test_same_cells_give_the_same_probabilities():
    assert forecasts(make_cells()) == forecasts(make_cells())
