from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from stepladder.stats.effects import (
    Spread,
    difference_interval,
    holm,
    mean_interval,
    minimum_detectable_difference,
    not_measured,
    paired_difference,
    pooled_spread,
    seeds_needed,
    welch_p,
)

A, B, C = [0.61, 0.58, 0.66], [0.70, 0.75, 0.69, 0.72], [0.4]


def test_mean_interval_of_one_arm_equals_scipy():
    found = mean_interval(A, pooled_spread([A]))
    expected = scipy.stats.t.interval(0.95, 2, np.mean(A), scipy.stats.sem(A))
    assert (found.low, found.high) == pytest.approx(expected)
    assert (found.n, found.level) == (3, 0.95)


def test_pooled_difference_equals_scipys_equal_variance_test():
    found = difference_interval(B, A, pooled_spread([A, B]))
    expected = scipy.stats.ttest_ind(B, A).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_two_spreads_give_the_welch_interval():
    found = difference_interval(B, A, pooled_spread([B]), pooled_spread([A]))
    expected = scipy.stats.ttest_ind(B, A, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_spread_pools_over_arms_and_skips_lone_seeds():
    found = pooled_spread([A, B, C])
    squares = 2 * np.var(A, ddof=1) + 3 * np.var(B, ddof=1)
    assert found is not None
    assert found.df == 5
    assert found.sd == pytest.approx(math.sqrt(squares / 5))


def test_lone_seed_borrows_the_spread_and_keeps_n_one():
    found = mean_interval(C, pooled_spread([A, B]))
    assert found.n == 1
    assert found.low is not None
    assert found.low < 0.4


def test_without_a_spread_there_are_no_bounds():
    assert pooled_spread([C, [0.2]]) is None
    found = mean_interval(C, None)
    assert (found.mean, found.low, found.high) == (0.4, None, None)
    assert difference_interval(C, [0.2], None).low is None


def test_nothing_is_not_zero():
    assert mean_interval([], Spread(0.1, 3)) == not_measured()
    assert not_measured().n == 0


def test_floor_keeps_equal_scores_from_certainty():
    found = pooled_spread([[1.0, 1.0, 1.0]], floor=0.002)
    assert found == Spread(0.002, 2)


def test_welch_p_equals_scipy_and_needs_two_seeds_and_a_spread():
    assert welch_p(A, B) == pytest.approx(scipy.stats.ttest_ind(A, B, equal_var=False).pvalue)
    assert welch_p(A, C) is None
    assert welch_p([0.5, 0.5], [0.7, 0.7]) is None


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.04, 0.09, 0.09, None])
    assert holm([0.02], family_size=3) == pytest.approx([0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_paired_difference_uses_shared_seeds():
    first, second = {1: 0.5, 2: 0.7, 3: 0.9, 9: 0.1}, {1: 0.4, 2: 0.55, 3: 0.85}
    found = paired_difference(first, second)
    expected = scipy.stats.ttest_rel([0.5, 0.7, 0.9], [0.4, 0.55, 0.85]).confidence_interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n == 3
    assert paired_difference({1: 0.5}, {2: 0.5}) is None


def test_seeds_needed_and_detectable_difference_agree():
    needed = seeds_needed(0.05, 0.03)
    assert needed is not None
    gap = minimum_detectable_difference(Spread(0.03, 2 * (needed - 1)), needed, needed)
    fewer = minimum_detectable_difference(Spread(0.03, 2 * (needed - 2)), needed - 1, needed - 1)
    assert gap <= 0.05 < fewer


def test_seeds_needed_has_power_in_simulation():
    needed = seeds_needed(0.05, 0.03)
    assert needed is not None
    draws = np.random.default_rng(5).normal(0, 0.03, (2000, 2, needed))
    draws[:, 0] += 0.05
    hits = sum(
        (difference_interval(a, b, pooled_spread([a, b])).low or -1) > 0 for a, b in draws.tolist()
    )
    assert 0.76 < hits / 2000 < 0.86


def test_no_number_of_seeds_settles_no_gap():
    assert seeds_needed(0.0, 0.03) is None
    assert seeds_needed(1e-5, 0.03) is None


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_pooled_interval_covers(num_seeds: int):
    draws = np.random.default_rng(3).normal(0.5, 0.03, (2000, 4, num_seeds)).tolist()
    covered = 0
    for arms in draws:
        found = mean_interval(arms[0], pooled_spread(arms))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.5 <= found.high
    assert 0.93 <= covered / 2000 <= 0.97


def test_two_equal_arms_are_seldom_called_different():  # scaling.md T9
    draws = np.random.default_rng(4).normal(0, 1, (1000, 2, 3)).tolist()
    assert sum((welch_p(a, b) or 1) < 0.05 for a, b in draws) <= 60


scores = st.lists(st.floats(0, 1), min_size=2, max_size=6)


@settings(deadline=None)
@given(scores, scores, st.floats(-1, 1))
def test_shift_moves_means_and_keeps_widths(first: list[float], second: list[float], shift: float):
    spread = pooled_spread([first, second], floor=1e-3)
    moved = pooled_spread([[v + shift for v in first], second], floor=1e-3)
    assert spread is not None
    assert moved is not None
    assert moved.sd == pytest.approx(spread.sd, abs=1e-9)
    before = difference_interval(first, second, spread)
    after = difference_interval([v + shift for v in first], second, moved)
    assert after.mean == pytest.approx(before.mean + shift, abs=1e-9)


@settings(deadline=None)
@given(st.lists(scores, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_order_of_arms_and_seeds_changes_no_bit(arms: list[list[float]], shuffler):
    expected = pooled_spread(arms)
    for arm in arms:
        shuffler.shuffle(arm)
    shuffler.shuffle(arms)
    assert pooled_spread(arms) == expected


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_order_and_never_lowers(p_values: list[float]):
    adjusted = holm(p_values)
    assert all(a is not None and p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    ranked = [adjusted[i] for i in sorted(range(len(p_values)), key=p_values.__getitem__)]
    assert ranked == sorted(ranked, key=lambda v: v or 0)
