"""Canonical metrics and their reducers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.metrics import (
    METRICS,
    Last,
    Layer,
    Max,
    Mean,
    Metrics,
    Sum,
    describe,
    split_finite,
)

NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(NUMBERS, min_size=1), st.lists(NUMBERS, min_size=1))
def test_joined_means_are_the_mean_over_all(left, right):
    joined = Mean.of(left).join(Mean.of(right)).value()
    assert joined == pytest.approx(math.fsum(left + right) / len(left + right), abs=1e-6)


def test_mean_of_nothing_is_no_number():
    assert Mean.of([]).value() is None


def test_reducers_join():
    assert Max(1.0).join(Max(3.0)).value() == 3.0
    assert Sum(1.0).join(Sum(3.0)).value() == 4.0
    assert Last(1.0).join(Last(3.0)).value() == 3.0


def test_values_are_sorted_and_leave_out_what_was_not_counted():
    metrics = Metrics()
    metrics.add("ratio_max", Max(2.0))
    metrics.add("entropy", Mean.of([1.0, 2.0]))
    metrics.add("entropy", Mean.of([6.0]))
    metrics.add("loss", Mean.of([]))
    assert list(metrics.values().items()) == [("entropy", 3.0), ("ratio_max", 2.0)]


def test_a_reducer_that_contradicts_the_table_is_an_error():
    with pytest.raises(TypeError, match="ratio_max reduces by max, not Mean"):
        Metrics().add("ratio_max", Mean.of([1.0]))


def test_a_name_outside_the_table_is_an_error():
    with pytest.raises(KeyError, match="not a canonical metric"):
        Metrics().add("reward_man", Mean.of([1.0]))


@pytest.mark.parametrize("name", ["term_mean/format", "term_std/mine", "eval/pass@8"])
def test_variable_parts_are_matched(name):
    assert describe(name) is not None


def test_table_is_consistent():
    for name, info in METRICS.items():
        assert info.name == name
        assert info.reduction in {"mean", "max", "sum", "last"}
        assert info.better in {"up", "down", "none"}
        assert info.layer in Layer
        assert info.meaning and info.unit


def test_non_finite_values_are_named_and_taken_out():
    kept, names = split_finite({"loss": math.nan, "kl_ref": 0.5, "entropy": math.inf})
    assert (kept, names) == ({"kl_ref": 0.5}, ("entropy", "loss"))
