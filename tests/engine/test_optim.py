"""Clipping, the alarm, the schedule's end, masters of reduced precision, and exact state."""

import math

import numpy as np
import pytest
import torch

from stepladder.engine.adamw import AdamW, AdamWSettings
from stepladder.engine.optim import MIN_NORMS, GradientNorms, Optimizer
from stepladder.spec.run import OptimSpec


def optimizer(weight=None, **settings):
    weight = torch.nn.Parameter(torch.ones(4, 4)) if weight is None else weight
    return Optimizer({"w": weight}, OptimSpec(**{"warmup_steps": 0, **settings}), 10), weight


def update(one, weight, norm):
    """Apply a gradient of a norm, equal in every entry."""
    weight.grad = torch.full_like(weight, norm / math.sqrt(weight.numel()))
    return one.update(1e-3)


def test_a_decaying_schedule_ends_at_its_share_and_lr_replaces_the_peak():
    for schedule in ("linear", "cosine"):
        one, _ = optimizer(lr=1e-2, schedule=schedule, final_lr_share=0.2)
        assert one.learning_rate(1) == pytest.approx(1e-2)
        assert one.learning_rate(6) == pytest.approx(6e-3)  # half way between 1 and 0.2
        assert one.learning_rate(11) == pytest.approx(2e-3)
    weights = {"w": torch.nn.Parameter(torch.ones(1))}
    other = Optimizer(weights, OptimSpec(lr=1e-2, warmup_steps=2), 10, lr=4e-3)
    assert [other.learning_rate(s, 0.5) for s in (1, 2, 5)] == pytest.approx([1e-3, 2e-3, 2e-3])


def test_fixed_and_size_scaled_thresholds():
    assert optimizer(max_grad_norm=0.5)[0].threshold() == 0.5
    weights = {"w": torch.nn.Parameter(torch.ones(4, 4))}
    spec = OptimSpec(clip="size_scaled", max_grad_norm=0.5, clip_parameters=4)
    assert Optimizer(weights, spec, 10).threshold() == pytest.approx(0.5 * 2)
    assert Optimizer(weights, spec, 10, num_parameters=400).threshold() == pytest.approx(5.0)
    one = Optimizer(weights, spec, 10)
    result = update(one, weights["w"], 3.0)
    assert (result.clipped, result.threshold) == (True, pytest.approx(1.0))
    assert float(weights["w"].grad.norm()) == pytest.approx(1.0, rel=1e-5)


def test_the_quantile_looks_back_on_the_window_and_never_exceeds_the_norm():
    spec = {"clip": "quantile", "clip_window": 12, "clip_quantile": 0.75, "max_grad_norm": 2.0}
    one, weight = optimizer(**spec)
    norms = np.random.default_rng(0).uniform(0.5, 1.5, 30)
    for count, norm in enumerate(norms):
        expected = (
            2.0 if count < MIN_NORMS else np.quantile(norms[max(0, count - 12) : count], 0.75)
        )
        result = update(one, weight, float(norm))
        assert result.threshold == pytest.approx(expected, rel=1e-5)
        assert result.clipped == (result.grad_norm > result.threshold)
    for _ in range(12):
        update(one, weight, 50.0)
    assert one.threshold() == 2.0


def test_norms_of_zero_do_not_pull_the_threshold_or_the_average_to_zero():
    one, weight = optimizer(clip="quantile", alarm_response="skip")
    for _ in range(30):
        assert update(one, weight, 0.0).applied
    assert one.threshold() == 1.0
    assert update(one, weight, 0.5).applied


@pytest.mark.parametrize(
    ("response", "applied"), [("none", True), ("lower_lr", True), ("skip", False)]
)
def test_an_alarm_is_told_and_skipped_only_when_asked(response, applied):
    one, weight = optimizer(alarm_factor=4.0, alarm_response=response)
    assert not any(update(one, weight, 0.2).alarm for _ in range(MIN_NORMS))
    assert not update(one, weight, 0.79).alarm
    before, moments = weight.detach().clone(), {n: t.clone() for n, t in one.state().items()}
    result = update(one, weight, 30.0)
    assert (result.alarm, result.applied) == (True, applied)
    assert result.reason == ("" if applied else "alarm")
    assert torch.equal(weight, before) != applied
    assert torch.equal(one.state()["exp_avg/w"], moments["exp_avg/w"]) != applied
    assert result.clipped == applied


def test_an_early_outlier_is_no_alarm():
    one, weight = optimizer(alarm_response="skip")
    assert all(update(one, weight, n).applied for n in [0.1] * (MIN_NORMS - 1) + [90.0])


def test_the_average_is_unbiased_and_an_alarming_norm_enters_it_cut():
    norms = GradientNorms(10)
    assert norms.average == 0.0
    for _ in range(MIN_NORMS):
        norms.add(0.3, 5.0)
    assert norms.average == pytest.approx(0.3)
    norms.add(1e6, 5.0)
    decayed = [0.95 ** (10 - k) for k in range(11)]
    expected = np.average([0.3] * 10 + [1.5], weights=decayed)
    assert norms.average == pytest.approx(expected)
    # A lasting change of level is taken up in the end: no endless row of skipped updates.
    for _ in range(80):
        norms.add(30.0, 5.0)
    assert not norms.is_alarming(30.0, 5.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_changes_nothing(bad):
    one, weight = optimizer()
    for _ in range(3):
        update(one, weight, 0.4)
    before, state = weight.detach().clone(), {n: t.clone() for n, t in one.state().items()}
    result = update(one, weight, bad)
    assert (result.applied, result.reason, result.alarm) == (False, "non_finite", False)
    assert torch.equal(weight, before)
    assert state.keys() == one.state().keys()
    assert all(torch.equal(state[n], t) for n, t in one.state().items())
    assert weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_loaded_optimizer_goes_on_bit_for_bit(dtype):
    spec = {"clip": "quantile", "clip_window": 11, "alarm_response": "skip", "weight_decay": 0.1}
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(30, 4, 4, generator=generator).to(dtype) * 0.1
    gradients[20] *= 100  # an alarm: the restored average must see it too
    whole, weight = optimizer(torch.nn.Parameter(torch.ones(4, 4, dtype=dtype)), **spec)
    for at in range(13):
        weight.grad = gradients[at].clone()
        whole.update(1e-2)
    saved = {name: tensor.clone() for name, tensor in whole.state().items()}
    assert saved["norms/last"].dtype == saved["norms/average"].dtype == torch.float64
    assert saved["exp_avg/w"].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    half, twin = optimizer(torch.nn.Parameter(weight.detach().clone()), **spec)
    update(half, twin, 7.0)  # something that the load must clear
    with torch.no_grad():
        twin.copy_(weight)
    half.load(saved)
    results = []
    for at in range(13, 30):
        for one, each in ((whole, weight), (half, twin)):
            each.grad = gradients[at].clone()
            results.append(one.update(1e-2))
    assert results[::2] == results[1::2]
    assert [r.reason for r in results[::2]].count("alarm") == 1
    assert torch.equal(weight, twin)
    assert all(torch.equal(whole.state()[n], t) for n, t in half.state().items())


def test_loading_an_empty_state_clears_moments_masters_and_norms():
    one, weight = optimizer(torch.nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16)))
    update(one, weight, 0.5)
    assert "master/w" in one.state()
    one.load({})
    assert one.state() == {}


def test_bfloat16_weights_follow_their_float32_masters():
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(8, 3, generator=generator).bfloat16()
    reduced = {"w": torch.nn.Parameter(start.clone())}
    full = {"w": torch.nn.Parameter(start.float())}
    one, other = AdamW(reduced, AdamWSettings()), AdamW(full, AdamWSettings())
    for _ in range(20):
        gradient = torch.randn(8, 3, generator=generator).bfloat16()
        reduced["w"].grad, full["w"].grad = gradient, gradient.float()
        one.step(1e-5)
        other.step(1e-5)
    assert torch.equal(one.state()["master/w"], full["w"])
    assert torch.equal(reduced["w"], full["w"].bfloat16())
    # Each step alone is below half a unit of the last place of most weights: nothing may get lost.
    assert not torch.equal(full["w"], start.float())


def test_weights_of_several_types_are_stepped_together():
    weights = {
        "a": torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64)),
        "b": torch.nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16)),
        "c": torch.nn.Parameter(torch.ones(2, dtype=torch.float32)),
    }
    for weight in weights.values():
        weight.grad = torch.full_like(weight, 0.01)
    assert Optimizer(weights, OptimSpec(warmup_steps=0), 5).update(0.1).applied
    for weight in weights.values():
        assert torch.allclose(weight.double(), torch.tensor(0.9, dtype=torch.float64), atol=2e-3)


def test_the_norm_of_reduced_gradients_is_summed_in_float32():
    one, weight = optimizer(torch.nn.Parameter(torch.ones(300, 7, dtype=torch.bfloat16)))
    result = update(one, weight, 1.2345)
    exact = float(torch.full((300, 7), 1.2345 / math.sqrt(2100)).bfloat16().double().norm())
    assert result.grad_norm == pytest.approx(exact, rel=1e-5)
