import pytest
from factories import make_cost, make_costs, make_plan, make_study
from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.errors import SpecError
from stepladder.study.cost import (
    cost_runs,
    derive_costs,
    list_schedule,
    parse_budget,
    shape_seconds,
    steps_choices,
    trim_to_budget,
)
from stepladder.study.shape import full_shape

SPEC = make_study()
COSTS = derive_costs(SPEC, make_costs())


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("6m", 360), ("1h", 3600), ("1h30m", 5400), ("2", 120)]
)
def test_budgets_are_read(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "0s", "-5m", "6 weeks", "1.2.3m", "."])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(SpecError, match="write 90s"):
        parse_budget(text)


def test_every_size_and_the_largest_group_are_measured():
    assert sorted(cost_runs(SPEC)) == [
        "ladder-x1/g16",
        "ladder-x1/g8",
        "ladder-x2/g8",
        "ladder-x4/g8",
    ]


def test_the_other_groups_lie_on_the_line_through_two_measured():
    costs = derive_costs(SPEC, {**make_costs(), "ladder-x1/g16": make_cost(0.25)})
    assert costs["ladder-x1/g4"].step_s == pytest.approx(0.10)


def test_longest_first_keeps_two_slots_busy():
    assert list_schedule([3, 3, 2, 2, 2], 2) == 7
    assert list_schedule([5, 1, 1, 1, 1, 1], 2) == 5
    assert list_schedule([], 2) == 0


@given(
    st.lists(st.floats(min_value=0.01, max_value=100), min_size=1, max_size=30),
    st.integers(min_value=1, max_value=8),
)
def test_a_schedule_is_never_shorter_than_its_bounds(seconds, slots):
    wall = list_schedule(seconds, slots)
    assert wall >= max(max(seconds), sum(seconds) / slots) - 1e-6
    assert wall <= sum(seconds) + 1e-6


def test_a_plan_that_fits_is_not_trimmed():
    assert trim_to_budget(SPEC, COSTS, 10_000, 2).trims == ()


def test_trims_come_in_the_stated_order():
    asked = shape_seconds(SPEC, full_shape(SPEC), COSTS, 2)
    seen = [trim_to_budget(SPEC, COSTS, asked * share / 100, 2) for share in range(100, 20, -2)]
    order = [
        "long run",
        "steps instead",
        "samples_per_prompt=16",
        "unadjusted control at ladder-x4",
    ]
    first = {
        words: next(i for i, t in enumerate(seen) if any(words in line for line in t.trims))
        for words in order
    }
    assert sorted(first, key=lambda words: first[words]) == order


def test_a_trimmed_plan_fits_its_budget_and_keeps_three_seeds():
    plan = make_plan(costs=COSTS, budget_s=250)
    trimmed = trim_to_budget(SPEC, COSTS, 250, 2)
    assert trimmed.estimated_s <= 250
    assert plan.trims == trimmed.trims != ()
    assert trimmed.shape.seeds == (1, 2, 3)
    steps = {cell.run.budget.steps for cell in plan.cells if cell.arm != "long"}
    assert len(steps) == 1
    assert steps.pop() % SPEC.base.eval.every == 0
    assert {c.provenance["budget.steps"] for c in plan.cells if c.arm != "long"} == {"budget"}


def test_a_hopeless_budget_says_so_and_goes_on_with_the_floor():
    trimmed = trim_to_budget(SPEC, COSTS, 5, 2)
    assert "too small even so" in trimmed.trims[-1]
    assert trimmed.shape.steps == steps_choices(SPEC.base)[-1]
    assert len(trimmed.shape.seeds) == 3


def test_extra_seeds_go_last_and_never_below_three():
    spec = make_study(seeds=[1, 2, 3, 4, 5])
    trimmed = trim_to_budget(spec, COSTS, 5, 2)
    assert trimmed.shape.seeds == (1, 2, 3)
    assert any("3 seeds a point instead of 5" in line for line in trimmed.trims)


def test_no_trim_reaches_the_warm_up_or_the_validation():
    spec = make_study(base={"optim": {"warmup_steps": 55}, "validation": {"steps": 30}})
    assert min(steps_choices(spec.base)) == 60
