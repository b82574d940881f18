from __future__ import annotations

import numpy as np
import pytest

from stepladder.stats.robust import mad_sd, noise_sd, rolling_median, theil_sen


def test_noise_is_found_under_a_trend():
    values = (np.arange(400) * 0.1 + np.random.default_rng(1).normal(0, 0.5, 400)).tolist()
    assert noise_sd(values) == pytest.approx(0.5, rel=0.2)


def test_one_outlier_moves_nothing():
    values = np.random.default_rng(2).normal(0, 1, 99).tolist()
    assert mad_sd([*values, 1e6]) == pytest.approx(mad_sd(values), rel=0.1)
    x = list(range(21))
    y = [2.0 * a for a in x]
    assert theil_sen(x, [*y[:-1], -500.0]) == pytest.approx(2.0)


def test_too_short_series_have_no_answer():
    assert mad_sd([1.0]) is None
    assert noise_sd([1.0, 2.0]) is None
    assert theil_sen([1.0, 1.0], [0.0, 1.0]) is None


def test_rolling_median_looks_back_only():
    assert rolling_median([1.0, 9.0, 2.0, 3.0], 3) == [1.0, 5.0, 2.0, 3.0]
