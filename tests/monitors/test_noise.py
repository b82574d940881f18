"""Window statistics: noise from differences, windows from noise, onsets from levels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepladder.monitors.noise import (
    adaptive_window,
    change_point,
    expanding_median,
    find_fall,
    first_run,
    noise_sigma,
)


def test_sigma_does_not_see_a_trend():
    rng = np.random.default_rng(0)
    values = np.linspace(0, 100, 5000) + rng.normal(0, 0.5, 5000)
    assert noise_sigma(values) == pytest.approx(0.5, rel=0.05)


def test_sigma_of_a_quantised_reward_is_not_zero():
    rng = np.random.default_rng(0)
    values = rng.binomial(1, 0.05, 2000).astype(float)
    assert noise_sigma(values) == pytest.approx(np.sqrt(0.05 * 0.95), rel=0.1)


@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=80))
def test_windows_stay_in_bounds(values):
    window = adaptive_window(np.array(values))
    assert 5 <= window <= max(5, len(values) // 4)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_expanding_median_is_the_median_of_every_prefix(values):
    expected = [np.median(values[: i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(expanding_median(np.array(values)), expected)


def test_change_point_is_where_the_level_changes():
    assert change_point(np.array([1.0] * 13 + [0.0] * 7)) == 13


def test_first_run_wants_them_in_a_row():
    assert first_run(np.array([True, False, True, True, True]), 3) == 2
    assert first_run(np.array([True, True]), 3) is None


@pytest.mark.parametrize("offset", [30, 50, 77])
def test_a_fall_is_placed_at_its_onset(offset):
    rng = np.random.default_rng(offset)
    values = np.where(np.arange(120) < offset, 0.8, 0.05) + rng.normal(0, 0.02, 120)
    fall = find_fall(values, 0.33, 6.0)
    assert fall is not None
    assert fall.index == offset
