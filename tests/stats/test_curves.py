from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from stepladder.stats.curves import (
    BEYOND_RANGE,
    TOO_FEW_POINTS,
    LineFit,
    Refusal,
    fit_log_linear,
    fit_log_linear_loss,
    gain_between,
    predict,
    predict_score,
)

X = [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
Y = [0.50, 0.52, 0.58, 0.60, 0.69, 0.66]


def fitted(x: list[float], y: list[float]) -> LineFit:
    found = fit_log_linear(x, y)
    assert isinstance(found, LineFit)
    return found


def test_line_equals_scipy():
    expected = scipy.stats.linregress(np.log(X), Y)
    found = fitted(X, Y)
    assert found.slope == pytest.approx(expected.slope)
    assert found.intercept == pytest.approx(expected.intercept)
    assert found.slope_error == pytest.approx(expected.stderr)
    assert (found.df, found.num_points, found.num_distinct) == (4, 6, 3)


def test_gain_of_a_doubling_is_slope_with_its_t_interval():
    found = gain_between(fitted(X, Y), 4, 8)
    expected = scipy.stats.linregress(np.log(X), Y)
    assert not isinstance(found, Refusal)
    assert found.mean == pytest.approx(expected.slope * math.log(2))
    half = scipy.stats.t.ppf(0.975, 4) * expected.stderr * math.log(2)
    assert found.high == pytest.approx(found.mean + half)


def test_mean_at_a_new_point_covers_in_simulation():
    noise = np.random.default_rng(8).normal(0, 0.03, (2000, 9)).tolist()
    x = [1.0, 2.0, 4.0] * 3
    hits = 0
    for row in noise:
        y = [0.5 + 0.05 * math.log(a) + e for a, e in zip(x, row, strict=True)]
        found = predict(fitted(x, y), 8)
        assert not isinstance(found, Refusal)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0.5 + 0.05 * math.log(8) <= found.high
    assert 0.93 <= hits / 2000 <= 0.97


def test_leave_last_out_is_the_miss_of_the_others():
    found = fitted([1, 2, 4], [0.5, 0.6, 0.65])
    assert found.leave_last_out_miss == pytest.approx(0.05)


def test_two_distinct_points_are_refused():
    assert fit_log_linear([1, 2, 2, 1], [0.1, 0.2, 0.3, 0.1]) == Refusal(TOO_FEW_POINTS)
    assert fit_log_linear([], []) == Refusal(TOO_FEW_POINTS)


@pytest.mark.parametrize("x", [16.1, 0.2])
def test_beyond_four_times_the_range_is_refused(x: float):
    assert predict(fitted(X, Y), x) == Refusal(BEYOND_RANGE)
    assert gain_between(fitted(X, Y), 4, x) == Refusal(BEYOND_RANGE)


def test_four_times_exactly_is_answered():
    assert not isinstance(predict(fitted(X, Y), 16), Refusal)


def test_loss_law_is_recovered_and_extended():
    x = [20.0, 40, 60, 80, 100]
    law = [1 - 0.9 * place**-0.3 for place in x]
    found = fit_log_linear_loss(x, law)
    assert isinstance(found, LineFit)
    assert found.slope == pytest.approx(-0.3)
    assert predict_score(found, 200) == pytest.approx(1 - 0.9 * 200**-0.3)
    assert predict_score(found, 500) == Refusal(BEYOND_RANGE)


def test_perfect_scores_do_not_break_the_loss_law():
    found = fit_log_linear_loss([1, 2, 4], [1.0, 1.0, 1.0], floor=0.004)
    assert isinstance(found, LineFit)
    assert predict_score(found, 8) == pytest.approx(0.996)


points = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 4.0, 8.0]), st.floats(0, 1)), min_size=4, max_size=12
)


@settings(deadline=None)
@given(points, st.randoms(use_true_random=False))
def test_order_of_points_changes_no_bit(pairs: list[tuple[float, float]], shuffler):
    expected = fit_log_linear([a for a, _ in pairs], [b for _, b in pairs])
    shuffler.shuffle(pairs)
    assert fit_log_linear([a for a, _ in pairs], [b for _, b in pairs]) == expected
