"""The validation gate stops what cannot become healthy and nothing else."""

import pytest

from stepladder.core.control import ActionKind
from stepladder.core.metrics import StepMetrics
from stepladder.monitors.validation import ValidationGate
from stepladder.spec.run import ValidationSpec

SPEC = ValidationSpec(steps=20, max_kl=1.0, min_score_share=0.5)


def at(step, non_finite=(), **values):
    return StepMetrics(
        step=step,
        values={name.replace("score", "eval/pass@1"): value for name, value in values.items()},
        system={},
        num_samples=0,
        num_tokens=0,
        non_finite=non_finite,
    )


def stops(gate, *steps):
    return [gate.on_step(step).kind is ActionKind.STOP for step in steps]


def test_a_healthy_run_goes_on():
    gate = ValidationGate(SPEC)
    steps = [at(0, score=0.4), at(10, kl_ref=0.1), at(20, score=0.2), at(40, score=0.0)]
    assert stops(gate, *steps) == [False] * 4


def test_the_score_is_judged_once_at_the_first_evaluation_from_validation_on():
    gate = ValidationGate(SPEC)
    assert stops(gate, at(0, score=0.4), at(10, score=0.0), at(20), at(30, score=0.19)) == [
        False,
        False,
        False,
        True,
    ]


def test_the_reason_has_the_numbers():
    gate = ValidationGate(SPEC, base_score=0.4)
    reason = gate.on_step(at(20, score=0.1)).reason
    assert "0.100" in reason and "0.400" in reason and "step 20" in reason


@pytest.mark.parametrize("step", [1, 20, 500])
def test_kl_beyond_the_limit_stops_at_any_step(step):
    action = ValidationGate(SPEC).on_step(at(step, kl_ref=1.5))
    assert action.kind is ActionKind.STOP
    assert "validation.max_kl" in action.reason


def test_three_steps_in_a_row_that_are_not_finite_stop_it():
    gate = ValidationGate(SPEC)
    bad, good = ("grad_norm",), ()
    found = stops(gate, *(at(i, odd) for i, odd in enumerate([bad, bad, good, bad, bad, bad], 1)))
    assert found == [False] * 5 + [True]


def test_zero_steps_leave_the_belts_only():
    gate = ValidationGate(ValidationSpec(steps=0))
    assert stops(gate, at(0, score=0.4), at(20, score=0.0), at(21, kl_ref=2.0)) == [
        False,
        False,
        True,
    ]


def test_a_base_policy_that_solves_nothing_is_no_failure():
    assert stops(ValidationGate(SPEC), at(0, score=0.0), at(20, score=0.0)) == [False, False]
