"""Controllers: one step's answer each, against the written-out rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.control import Knobs
from stepladder.core.metrics import StepMetrics
from stepladder.core.rollout import RolloutGroup
from stepladder.engine.control import (
    AdaptiveKl,
    EntropyBand,
    EntropyCliff,
    KlBudget,
    ScheduledKl,
    build_controllers,
)
from stepladder.spec.run import EntropySpec, KlSpec, RunSpec

KNOBS = Knobs(kl_coef=0.02, entropy_coef=0.01)


class Group:
    """Stands for a group of 50 rollouts; a controller reads no more of it than their number."""

    rollouts = range(50)


GROUPS: list[RolloutGroup] = [Group(), Group()]


def metrics(step=1, **values):
    return StepMetrics(step=step, values=values, system={}, num_samples=0, num_tokens=0)


def answers(controller, name, values, knobs=KNOBS):
    """Return the adjustment after each of a series of values, each from the knobs before it."""
    found = []
    for step, value in enumerate(values, 1):
        found.append(controller.update(knobs, metrics(step, **{name: value}), GROUPS))
        knobs = found[-1].knobs
    return found


@pytest.mark.parametrize(
    ("kl", "error"), [(0.05, 0.0), (0.055, 0.1), (0.045, -0.1), (5.0, 0.2), (0.0, -0.2)]
)
def test_adaptive_kl_follows_the_bounded_proportional_rule(kl, error):
    controller = AdaptiveKl(KlSpec(controller="adaptive", target=0.05, horizon=1000))
    found = controller.update(KNOBS, metrics(kl_ref=kl), GROUPS)
    assert found.knobs.kl_coef == pytest.approx(0.02 * (1 + error * 100 / 1000), rel=1e-12)
    assert found.knobs.entropy_coef == KNOBS.entropy_coef
    assert (found.events, found.stop) == ((), None)


@given(kls=st.lists(st.floats(0, 1e6), max_size=50), coef=st.floats(0, 10))
def test_adaptive_kl_stays_inside_its_bounds(kls, coef):
    spec = KlSpec(controller="adaptive", coef_min=1e-3, coef_max=0.5, horizon=10)
    knobs = Knobs(kl_coef=coef, entropy_coef=0.0)
    for found in answers(AdaptiveKl(spec), "kl_ref", kls, knobs):
        assert 1e-3 <= found.knobs.kl_coef <= 0.5


def test_adaptive_kl_recovers_from_a_coefficient_of_zero():
    controller = AdaptiveKl(KlSpec(controller="adaptive"))
    knobs = Knobs(kl_coef=0.0, entropy_coef=0.0)
    assert controller.update(knobs, metrics(kl_ref=9.0), GROUPS).knobs.kl_coef > 1e-4


def test_scheduled_kl_runs_from_the_first_coefficient_to_the_last():
    spec = KlSpec(controller="schedule", coef=0.01, final_coef=0.09)
    found = answers(ScheduledKl(spec, steps=5), "kl_ref", [1.0] * 6)
    coefs = [KNOBS.kl_coef, *(each.knobs.kl_coef for each in found)]
    # coefs[s] is in force at step s + 1: geometric, tight at the run's last step and after it.
    assert coefs[2] == pytest.approx(0.01 * 9 ** (2 / 4))
    assert coefs[4] == coefs[5] == coefs[6] == pytest.approx(0.09)
    assert ScheduledKl(spec, steps=1).update(KNOBS, metrics(1), []).knobs.kl_coef == 0.09


def test_a_schedule_goes_down_too():
    spec = KlSpec(controller="schedule", coef=0.1, final_coef=0.001)
    coefs = [a.knobs.kl_coef for a in answers(ScheduledKl(spec, 10), "kl_ref", [0.0] * 9)]
    assert coefs == sorted(coefs, reverse=True)


def test_the_budget_prefers_the_distance_from_the_base_policy():
    budget = KlBudget(0.5)
    inside = budget.update(KNOBS, metrics(kl_ref=9.0, kl_base=0.5), GROUPS)
    assert (inside.stop, inside.events, inside.knobs) == (None, (), KNOBS)
    spent = budget.update(KNOBS, metrics(kl_ref=0.1, kl_base=0.6), GROUPS)
    assert "0.6" in spent.stop and "0.5" in spent.stop
    assert [event.kind for event in spent.events] == ["kl_budget_spent"]
    assert budget.update(KNOBS, metrics(kl_ref=0.6), GROUPS).stop


def test_the_band_raises_below_lowers_above_and_returns_inside():
    spec = EntropySpec(controller="adaptive", coef=0.01, rate=0.1)
    band = EntropyBand(spec)
    first = band.update(KNOBS, metrics(entropy=2.0), GROUPS).knobs.entropy_coef
    # The first entropy is 2, above 0.8 of itself by a quarter of the upper edge: half speed.
    assert first == pytest.approx(0.01 / (1 + 0.1 * 2 * (2.0 - 1.6) / 1.6))
    low = band.update(KNOBS, metrics(entropy=0.3), GROUPS).knobs.entropy_coef
    assert low == pytest.approx(0.01 * (1 + 0.1 * 2 * (0.4 - 0.3) / 0.4))
    assert band.update(KNOBS, metrics(entropy=0.0), GROUPS).knobs.entropy_coef == pytest.approx(
        0.011
    )
    for coef in (0.05, 0.001):
        knobs = Knobs(kl_coef=0.0, entropy_coef=coef)
        coefs = [a.knobs.entropy_coef for a in answers(band, "entropy", [1.0] * 100, knobs)]
        assert coefs[0] != 0.01 and coefs[-1] == 0.01
        assert coefs == sorted(coefs, reverse=coef > 0.01)


@given(entropies=st.lists(st.floats(0, 10), max_size=60))
def test_the_band_stays_inside_its_bounds(entropies):
    band = EntropyBand(EntropySpec(controller="adaptive", rate=0.9, coef_min=1e-3, coef_max=0.05))
    for found in answers(band, "entropy", entropies):
        assert 1e-3 <= found.knobs.entropy_coef <= 0.05


def test_a_cliff_needs_a_full_window_and_answers_once():
    cliff = EntropyCliff(EntropySpec(cliff_window=3, cliff_share=0.5))
    found = answers(cliff, "entropy", [2.0, 0.1, 2.0, 1.1, 0.5, 0.1, 0.1, 0.1, 0.01])
    kinds = [[event.kind for event in each.events] for each in found]
    # 0.1 comes before the window is full, 1.1 is above half of 2, 0.5 is below half of 1.1; then
    # three more must fill the window.
    assert kinds == [[], [], [], [], ["entropy_cliff"], [], [], [], ["entropy_cliff"]]
    assert found[4].events[0].details == {"entropy": 0.5, "median": 1.1, "response": "raise"}


@pytest.mark.parametrize(
    ("response", "coef", "scale"),
    [("raise", 0.02, 1.0), ("lower_lr", 0.01, 0.5), ("none", 0.01, 1)],
)
def test_the_responses_to_a_cliff(response, coef, scale):
    cliff = EntropyCliff(EntropySpec(cliff_window=2, cliff_response=response))
    knobs = answers(cliff, "entropy", [1.0, 1.0, 0.4])[-1].knobs
    assert (knobs.entropy_coef, knobs.lr_scale) == (pytest.approx(coef), scale)


def test_a_cliff_never_lowers_a_coefficient_above_its_bound():
    cliff = EntropyCliff(EntropySpec(coef=0.5, cliff_window=2, coef_max=0.1))
    knobs = Knobs(kl_coef=0.0, entropy_coef=0.5)
    assert answers(cliff, "entropy", [1.0, 1.0, 0.4], knobs)[-1].knobs.entropy_coef == 0.5


RUN = RunSpec.model_validate(
    {
        "kl": {"controller": "adaptive", "budget": 5.0},
        "entropy": {"controller": "adaptive"},
    }
)


def test_a_missing_metric_moves_nothing():
    for controller in build_controllers(RUN):
        found = controller.update(KNOBS, metrics(), GROUPS)
        assert (found.knobs, found.events, found.stop) == (KNOBS, (), None)


def test_the_built_controllers():
    assert [c.name for c in build_controllers(RunSpec())] == ["entropy_cliff"]
    names = [c.name for c in build_controllers(RUN)]
    assert names == ["adaptive_kl", "kl_budget", "entropy_band", "entropy_cliff"]
    schedule = RunSpec.model_validate({"kl": {"controller": "schedule"}})
    assert [c.name for c in build_controllers(schedule)] == ["scheduled_kl", "entropy_cliff"]


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("cut", range(1, 8))
def test_a_saved_state_goes_on_as_if_it_had_not_been_saved(index, cut):
    series = [
        metrics(step, entropy=value, kl_ref=value)
        for step, value in enumerate([3.0, 2.9, 2.8, 2.7, 2.6, 1.0, 0.9, 0.8, 0.1], 1)
    ]

    def end(resume):
        controller, knobs, seen = build_controllers(RUN)[index], KNOBS, []
        for step, row in enumerate(series):
            if resume and step == cut:
                state = controller.state()
                controller = build_controllers(RUN)[index]
                controller.load(state)
            found = controller.update(knobs, row, GROUPS)
            knobs = found.knobs
            seen.append(found)
        return seen

    assert end(resume=True) == end(resume=False)
