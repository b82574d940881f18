"""The objective against a float64 NumPy oracle: value, gradient, and every sum."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch

from stepladder.engine.batch import TokenLogprobs
from stepladder.engine.loss import (
    LossSettings,
    cispo_objective,
    clipped_objective,
    policy_loss,
)

PLAIN = LossSettings(clip_low=0.2, clip_high=0.3)
CASES = {
    "plain": PLAIN,
    "kl_entropy": replace(PLAIN, kl_coef=0.05, entropy_coef=0.02),
    "k1": replace(PLAIN, kl_coef=0.05, kl_estimator="k1"),
    "k2": replace(PLAIN, kl_coef=0.05, kl_estimator="k2"),
    "dual": replace(PLAIN, dual_clip=1.4),
    "dual_inside_the_clip": replace(PLAIN, dual_clip=1.1),
    "gspo": replace(PLAIN, ratio="sequence", clip_low=0.03, clip_high=0.04),
    "gspo_dual": replace(PLAIN, ratio="sequence", clip_low=0.03, clip_high=0.04, dual_clip=1.1),
    "cispo": replace(PLAIN, objective="cispo", clip_low=1.0, clip_high=0.5),
    "cispo_both": replace(PLAIN, objective="cispo"),
    "cispo_sequence": replace(PLAIN, objective="cispo", ratio="sequence", clip_high=0.05),
    "importance": replace(PLAIN, importance_cap=1.2, kl_coef=0.05, entropy_coef=0.02),
    "importance_row": replace(PLAIN, importance_cap=1.05, importance_level="sequence"),
    "value": replace(PLAIN, value_coef=0.5),
    "value_clip": replace(PLAIN, value_coef=0.5, value_clip=0.2, kl_coef=0.05),
    "value_only": replace(PLAIN, value_coef=0.5, value_clip=0.2, kl_coef=0.1, train_policy=False),
}
SEEDS = range(5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss_and_sums_equal_the_oracle(name, dtype):
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    for seed in SEEDS:
        batch, new = oracle.ragged_batch(seed, dtype=dtype)
        found = policy_loss(batch, new, CASES[name])
        loss, sums, ratio_max = oracle.objective(batch, new, CASES[name])
        assert found.loss.item() == pytest.approx(loss, rel=tolerance, abs=tolerance)
        assert found.ratio_max.item() == pytest.approx(ratio_max, rel=tolerance)
        measured = {key: float(value) for key, value in found.sums.items()}
        assert measured.pop("loss") == found.loss.item()
        assert measured == pytest.approx(sums, rel=tolerance, abs=10 * tolerance)


@pytest.mark.parametrize(
    ("name", "sum_names"),
    [
        ("plain", ["clip_low", "clip_high", "ratio_outside"]),
        ("dual", ["dual_clip"]),
        ("gspo", ["clip_low", "clip_high"]),
        ("gspo_dual", ["dual_clip"]),
        ("cispo", ["clip_high"]),
        ("cispo_both", ["clip_low", "clip_high"]),
        ("importance", ["importance_capped"]),
        ("importance_row", ["importance_capped"]),
        ("value_clip", ["value_clipped"]),
    ],
)
def test_the_random_batches_reach_every_branch(name, sum_names):
    totals = dict.fromkeys(sum_names, 0.0)
    tokens = 0.0
    for seed in SEEDS:
        sums = policy_loss(*oracle.ragged_batch(seed), CASES[name]).sums
        tokens += float(sums["tokens"])
        totals = {key: totals[key] + float(sums[key]) for key in sum_names}
    assert all(0 < total < tokens for total in totals.values()), totals


@pytest.mark.parametrize("name", [n for n, s in CASES.items() if s.objective == "clip"])
def test_the_gradient_is_the_difference_quotient_of_the_oracle(name):
    # KL terms train with the gradient of k2 whatever their value, so the quotient is k2's.
    smooth = replace(CASES[name], kl_estimator="k2")
    batch, new = oracle.ragged_batch(3)
    leaves = {k: getattr(new, k).clone().requires_grad_() for k in ("logp_NT", "value_NT")}
    entropy_NT = new.entropy_NT.clone().requires_grad_()
    asked = TokenLogprobs(entropy_NT=entropy_NT, **leaves)
    policy_loss(batch, asked, CASES[name]).loss.backward()
    for leaf, tensor in [*leaves.items(), ("entropy_NT", entropy_NT)]:
        grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        expected = quotient(batch, new, smooth, leaf)
        np.testing.assert_allclose(grad.numpy(), expected, rtol=1e-6, atol=1e-8)


def quotient(batch, new, settings, leaf, eps=1e-6):
    """Return central differences of the oracle's loss at every entry of one tensor."""
    values = getattr(new, leaf).numpy()
    grad = np.zeros_like(values)
    for place in np.ndindex(*values.shape):
        losses = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * eps
            changed = replace(new, **{leaf: torch.from_numpy(moved)})
            losses.append(oracle.objective(batch, changed, settings)[0])
        grad[place] = (losses[0] - losses[1]) / (2 * eps)
    return grad


@pytest.mark.parametrize("name", CASES)
def test_nothing_at_masked_tokens_matters(name):
    batch, new = oracle.ragged_batch(1)
    poisoned, poisoned_new = oracle.ragged_batch(1, masked=float("nan"))
    grads, terms = [], []
    for one, said in ((batch, new), (poisoned, poisoned_new)):
        logp_NT = said.logp_NT.clone().requires_grad_()
        assert said.value_NT is not None
        value_NT = said.value_NT.clone().requires_grad_()
        asked = replace(said, logp_NT=logp_NT, value_NT=value_NT)
        terms.append(policy_loss(one, asked, CASES[name]))
        terms[-1].loss.backward()
        grads.append([logp_NT.grad, value_NT.grad])
    assert terms[0].loss == terms[1].loss and terms[0].ratio_max == terms[1].ratio_max
    assert terms[0].sums == terms[1].sums
    assert terms[0].sums["tokens"] == batch.packed.mask_NT.sum() > 0
    live_NT = batch.packed.mask_NT > 0
    for clean, other in zip(*grads, strict=True):
        assert (clean is None) == (other is None)
        if clean is not None:
            assert torch.equal(clean, other)
            assert not clean[~live_NT].any()


def test_without_old_logprobs_the_ratio_is_exactly_one():
    batch, new = oracle.ragged_batch(0, old_logp_NT=None, ref_logp_NT=None)
    for ratio, objective in (("token", "clip"), ("sequence", "clip"), ("token", "cispo")):
        logp_NT = new.logp_NT.clone().requires_grad_()
        settings = LossSettings(clip_low=0.2, clip_high=0.2, ratio=ratio, objective=objective)
        found = policy_loss(batch, replace(new, logp_NT=logp_NT), settings)
        found.loss.backward()
        assert found.ratio_max == 1
        assert found.sums["ratio"] == found.sums["tokens"]
        assert found.sums["clip_low"] == found.sums["clip_high"] == 0
        assert batch.loss_weight_NT is not None
        weighted_NT = -batch.advantage_NT * batch.loss_weight_NT
        if ratio == "sequence":
            count_N1 = batch.packed.mask_NT.sum(1, keepdim=True).clamp_min(1)
            weighted_NT = (weighted_NT.sum(1, keepdim=True) / count_N1) * batch.packed.mask_NT
        torch.testing.assert_close(logp_NT.grad, weighted_NT)


@pytest.mark.parametrize(
    ("ratio", "advantage", "low", "high", "gradient"),
    [
        (1.5, 1.0, False, True, False),
        (1.5, -1.0, False, False, True),
        (0.5, -1.0, True, False, False),
        (0.5, 1.0, False, False, True),
        (1.1, 1.0, False, False, True),
        (1.1, 0.0, False, False, False),
        (1.5, 0.0, False, False, False),
    ],
)
def test_the_clip_acts_by_sign(ratio, advantage, low, high, gradient):
    logp = torch.tensor([[np.log(ratio)]], requires_grad=True)
    loss, is_low, is_high, is_dual = clipped_objective(
        logp.exp(), torch.tensor([[advantage]]), 0.2, 0.2
    )
    loss.sum().backward()
    assert (bool(is_low), bool(is_high), bool(logp.grad != 0)) == (low, high, gradient)
    assert not is_dual


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "acts"),
    [(2.9, -2.0, 5.8, False), (3.1, -2.0, 6.0, True), (3.1, 2.0, -2.4, False)],
)
def test_the_dual_clip_bounds_the_loss_of_negative_advantages_only(ratio, advantage, loss, acts):
    ratio_NT = torch.tensor([[ratio]], dtype=torch.float64, requires_grad=True)
    advantage_NT = torch.tensor([[advantage]], dtype=torch.float64)
    found, *_, dual = clipped_objective(ratio_NT, advantage_NT, 0.2, 0.2, 3.0)
    found.sum().backward()
    assert found.item() == pytest.approx(loss)
    assert bool(dual) == acts
    assert bool(ratio_NT.grad != 0) == (advantage < 0 and not acts)


@pytest.mark.parametrize(
    ("ratio", "weight"), [(0.1, 0.1), (1.0, 1.0), (4.9, 4.9), (5.1, 5.0), (100.0, 5.0)]
)
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_cispo_weighs_every_token_and_keeps_its_gradient(ratio, weight, advantage):
    logp = torch.tensor([[-0.7]], dtype=torch.float64, requires_grad=True)
    old = logp.detach() - np.log(ratio)
    loss, _, is_high = cispo_objective(
        (logp - old).exp(), logp, torch.full_like(old, advantage), 1.0, 4.0
    )
    assert loss.item() == pytest.approx(weight * advantage * 0.7)
    (grad,) = torch.autograd.grad(loss.sum(), logp)
    assert grad.item() == pytest.approx(-weight * advantage)
    assert bool(is_high) == (ratio > 5)


def test_the_importance_weight_has_no_gradient_and_leaves_other_terms_alone():
    batch, new = oracle.ragged_batch(0, old_logp_NT=None)
    batch = replace(batch, advantage_NT=torch.zeros_like(batch.advantage_NT))
    plain = replace(PLAIN, kl_coef=0.05, entropy_coef=0.02, value_coef=0.5)
    found = []
    for settings in (plain, replace(plain, importance_cap=1.1)):
        logp_NT = new.logp_NT.clone().requires_grad_()
        terms = policy_loss(batch, replace(new, logp_NT=logp_NT), settings)
        terms.loss.backward()
        found.append((terms.loss.detach(), logp_NT.grad))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_kl_is_measured_but_not_paid_when_its_coefficient_is_zero():
    batch, new = oracle.ragged_batch()
    found = policy_loss(batch, new, PLAIN)
    assert found.sums["kl_k3"] > 0 and found.sums["base_k3"] > 0
    without = replace(batch, packed=replace(batch.packed, ref_logp_NT=None, base_logp_NT=None))
    bare = policy_loss(without, new, PLAIN)
    assert found.loss == bare.loss
    assert not {"kl_k1", "kl_k3", "base_k3"} & set(bare.sums)


def test_a_far_off_policy_stays_finite():
    batch, new = oracle.ragged_batch()
    far = replace(new, logp_NT=(new.logp_NT - 1e4).requires_grad_())
    near = replace(batch, packed=replace(batch.packed, old_logp_NT=new.logp_NT - 2e4))
    for one in (batch, near):
        for settings in (CASES["kl_entropy"], CASES["gspo"], CASES["cispo"]):
            found = policy_loss(one, far, settings)
            assert found.loss.isfinite()
            assert all(value.isfinite() for value in found.sums.values())


def test_a_batch_without_a_token_to_train_on_is_zero():
    batch, new = oracle.ragged_batch()
    rows = slice(oracle.EMPTY, oracle.EMPTY + 1)
    part = TokenLogprobs(
        **{name: getattr(new, name)[rows] for name in ("logp_NT", "entropy_NT", "value_NT")}
    )
    for settings in CASES.values():
        found = policy_loss(batch.rows(rows), part, settings)
        assert found.loss == 0 and found.ratio_max == 0
        assert all(value == 0 for value in found.sums.values())


def test_what_is_missing_is_named():
    batch, new = oracle.ragged_batch()
    with pytest.raises(ValueError, match="loss_weight_NT"):
        policy_loss(replace(batch, loss_weight_NT=None), new, PLAIN)
    with pytest.raises(ValueError, match="value_coef"):
        policy_loss(replace(batch, return_NT=None), new, CASES["value"])
    old_values = replace(batch.packed, value_NT=None)
    with pytest.raises(ValueError, match="value_clip"):
        policy_loss(replace(batch, packed=old_values), new, CASES["value_clip"])
    for change in ({"objective": "ppo"}, {"ratio": "row"}, {"kl_coef": 1.0, "kl_estimator": "k4"}):
        with pytest.raises(ValueError, match=str(list(change.values())[-1])):
            policy_loss(batch, new, replace(PLAIN, **change))
