"""The KL cap's guard: what becomes of an update, and what it falls back to."""

import pytest
import torch
from torch import nn

from stepladder.engine.guard import HEALTHY_SHARE, KlGuard, build_guard
from stepladder.engine.optim import Optimizer
from stepladder.spec.run import KlSpec, OptimSpec

CAP = 0.1
HEALTHY = HEALTHY_SHARE * CAP


def setting(action="restore", values=(1.0, 2.0, 3.0)):
    weights = {"w": nn.Parameter(torch.tensor(values))}
    optimizer = Optimizer(weights, OptimSpec(lr=0.1, warmup_steps=0), steps=100)
    return weights, optimizer, build_guard(KlSpec(cap=CAP, cap_action=action), weights, optimizer)


def step(weights, optimizer, scale=1.0):
    weights["w"].grad = scale * torch.ones_like(weights["w"])
    optimizer.update(0.1)


def copied(weights, optimizer):
    return weights["w"].detach().clone(), {n: v.clone() for n, v in optimizer.state().items()}


def assert_equal(found, expected):
    assert torch.equal(found[0], expected[0])
    assert found[1].keys() == expected[1].keys()
    assert all(torch.equal(found[1][name], value) for name, value in expected[1].items())


def test_without_a_cap_there_is_no_guard():
    weights, optimizer, _ = setting()
    assert build_guard(KlSpec(cap=None), weights, optimizer) is None


@pytest.mark.parametrize("action", ["restore", "skip", "raise", "stop"])
@pytest.mark.parametrize("kl", [0.0, HEALTHY, CAP])
def test_at_or_below_the_cap_an_update_is_applied(action, kl):
    decision = setting(action)[2].check(kl)
    assert decision.apply and not decision.restored
    assert (decision.lr_factor, decision.kl_coef_factor) == (1.0, 1.0)
    assert (decision.stop, decision.event) == (None, None)


@pytest.mark.parametrize("kl", [CAP * 1.0001, 5.0, float("inf"), float("nan")])
@pytest.mark.parametrize("action", ["restore", "skip", "raise", "stop"])
def test_above_the_cap_each_action_does_what_it_says(action, kl):
    decision = setting(action)[2].check(kl)
    assert decision.apply == (action == "raise")
    assert decision.kl_coef_factor == (2.0 if action == "raise" else 1.0)
    assert (decision.stop is not None) == (action == "stop")
    assert decision.event.kind == "kl_cap"
    assert (decision.event.details["cap"], decision.event.details["response"]) == (CAP, action)
    shown = decision.event.details["kl"]
    assert shown == kl or shown == str(kl)


def test_restoring_takes_up_the_last_healthy_weights_and_moments_exactly():
    weights, optimizer, guard = setting()
    step(weights, optimizer)
    guard.check(HEALTHY)
    healthy = copied(weights, optimizer)
    step(weights, optimizer, scale=-3.0)
    guard.check(CAP)  # inside, but too near the edge to be kept
    step(weights, optimizer)
    decision = guard.check(2 * CAP)
    assert decision.restored and not decision.apply and decision.lr_factor == 0.5
    assert_equal(copied(weights, optimizer), healthy)


def test_a_restored_state_can_be_restored_again():
    weights, optimizer, guard = setting()
    step(weights, optimizer)
    guard.check(0.0)
    healthy = copied(weights, optimizer)
    for _ in range(2):
        # What comes after a restore must not write into the kept state.
        step(weights, optimizer)
        assert not torch.equal(weights["w"], healthy[0])
        assert guard.check(1.0).restored
        assert_equal(copied(weights, optimizer), healthy)


def test_a_state_before_the_first_update_has_no_moments():
    weights, optimizer, guard = setting()
    guard.check(0.0)
    step(weights, optimizer)
    guard.check(1.0)
    assert torch.equal(weights["w"], torch.tensor([1.0, 2.0, 3.0]))
    assert optimizer.state() == {}


def test_without_a_healthy_state_the_update_is_left_out():
    weights, _optimizer, guard = setting()
    decision = guard.check(1.0)
    assert (decision.apply, decision.restored, decision.lr_factor) == (False, False, 1.0)
    assert guard.state() == {}
    assert torch.equal(weights["w"], torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("action", ["skip", "raise", "stop"])
def test_only_restoring_keeps_a_copy(action):
    _, _, guard = setting(action)
    guard.check(0.0)
    assert guard.state() == {}


def test_the_kept_state_survives_a_checkpoint():
    weights, optimizer, guard = setting()
    step(weights, optimizer)
    guard.check(0.0)
    healthy = copied(weights, optimizer)
    saved = {k: {n: v.clone() for n, v in part.items()} for k, part in guard.state().items()}
    weights, optimizer, resumed = setting(values=(7.0, 7.0, 7.0))
    resumed.load(saved)
    step(weights, optimizer)
    assert resumed.check(1.0).restored
    assert_equal(copied(weights, optimizer), healthy)
    resumed.load({})
    assert resumed.state() == {}


def test_a_guard_is_never_built_without_a_cap():
    weights, optimizer, _ = setting()
    with pytest.raises(AssertionError, match="cap"):
        KlGuard(KlSpec(cap=None), weights, optimizer)
