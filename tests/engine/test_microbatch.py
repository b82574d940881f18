"""Aggregation: weights in closed form, and any micro-batch split gives the same gradient."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepladder.engine.aggregate import loss_weights
from stepladder.engine.batch import TokenLogprobs
from stepladder.engine.loss import LossSettings, policy_loss

AGGREGATIONS = ("token_mean", "sequence_mean", "fixed_length")
MAX_NEW_TOKENS = 6
N, D, V = 7, 4, 5
OBJECTIVES = {
    "clip": LossSettings(clip_low=0.2, clip_high=0.3, dual_clip=1.5, importance_cap=1.2),
    "gspo": LossSettings(
        ratio="sequence",
        clip_low=0.05,
        clip_high=0.06,
        importance_cap=1.1,
        importance_level="sequence",
    ),
    "cispo": LossSettings(objective="cispo", clip_low=1.0, clip_high=0.4),
}


class LinearSoftmax:
    """A policy and critic linear in fixed features of each place."""

    def __init__(self, seed, dtype):
        g = torch.Generator().manual_seed(seed)
        drawn = torch.randn(D, V + 1, generator=g, dtype=torch.float64)
        self.weight_DK = drawn.to(dtype).requires_grad_()
        self.features_NTD = torch.randn(N, 9, D, generator=g, dtype=torch.float64).to(dtype)

    def __call__(self, packed, rows):
        """Return what the policy says of some rollouts, with a gradient."""
        out_NTK = self.features_NTD[rows] @ self.weight_DK
        logp_NTV = out_NTK[..., :V].log_softmax(-1)
        logp_NT = logp_NTV.gather(-1, packed.tokens_NT[..., None])[..., 0]
        entropy_NT = -(logp_NTV.exp() * logp_NTV).sum(-1)
        return TokenLogprobs(logp_NT=logp_NT, entropy_NT=entropy_NT, value_NT=out_NTK[..., V])


def gradient(batch, policy, objective, parts):
    """Return the gradient and the sums that parts of a batch add up to."""
    policy.weight_DK.grad = None
    total = {}
    for part in parts:
        rows = torch.tensor(part)
        some = batch.rows(rows)
        terms = policy_loss(some, policy(some.packed, rows), objective)
        terms.loss.backward()
        for name, value in terms.sums.items():
            total[name] = total.get(name, 0.0) + float(value)
    grad = policy.weight_DK.grad
    assert grad is not None
    return grad.double(), total


def near_batch(policy, seed, dtype):
    """Return a ragged batch whose log-probs and values lie near the policy's own."""
    batch, _ = oracle.ragged_batch(seed, n=N, dtype=dtype)
    packed = batch.packed
    with torch.no_grad():
        said = policy(packed, torch.arange(N))
    # The batch's values as offsets: ratios then lie on both sides of every clip.
    shift_NT = said.logp_NT - packed.old_logp_NT
    moved = {
        name: getattr(packed, name) + shift_NT
        for name in ("sampler_logp_NT", "ref_logp_NT", "base_logp_NT")
    }
    old_NT = said.logp_NT + 0.3 * batch.advantage_NT
    packed = replace(
        packed, old_logp_NT=old_NT, value_NT=said.value_NT + 0.4 * batch.advantage_NT, **moved
    )
    return replace(batch, packed=packed)


def relative(found, expected):
    """Return the distance over the size."""
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    estimator=st.sampled_from(["k1", "k2", "k3"]),
    part_N=st.lists(st.integers(0, 4), min_size=N, max_size=N),
    order=st.permutations(range(N)),
)
def test_any_split_gives_the_same_gradient_and_sums(
    aggregation, objective, dtype, limit, seed, estimator, part_N, order
):
    policy = LinearSoftmax(seed, dtype)
    batch = near_batch(policy, seed, dtype)
    weights_NT = loss_weights(batch.packed, aggregation, MAX_NEW_TOKENS)
    batch = replace(batch, loss_weight_NT=weights_NT)
    chosen = replace(
        OBJECTIVES[objective],
        kl_coef=0.1,
        kl_estimator=estimator,
        entropy_coef=0.05,
        value_coef=0.5,
        value_clip=0.2,
    )
    parts = [[row for row in order if part_N[row] == part] for part in sorted(set(part_N))]
    whole, whole_sums = gradient(batch, policy, chosen, [list(range(N))])
    found, sums = gradient(batch, policy, chosen, parts)
    assert whole.norm() > 0
    assert relative(found, whole) <= limit
    assert sums == pytest.approx(whole_sums, rel=limit * 10, abs=limit * 10)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_taken_per_part_would_be_noticed(aggregation):
    policy = LinearSoftmax(0, torch.float64)
    batch = near_batch(policy, 0, torch.float64)
    parts = [[0, 1, 2], [3, 4], [5, 6]]

    def weighted(rows):
        some = batch.packed.rows(torch.tensor(rows))
        return loss_weights(some, aggregation, MAX_NEW_TOKENS)

    right = replace(batch, loss_weight_NT=weighted(list(range(N))))
    wrong = replace(batch, loss_weight_NT=torch.cat([weighted(part) for part in parts]) / 3)
    expected, _ = gradient(right, policy, OBJECTIVES["clip"], parts)
    found, _ = gradient(wrong, policy, OBJECTIVES["clip"], parts)
    assert relative(found, expected) > 1e-2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_weights_in_closed_form(dtype):
    for seed in range(5):
        packed = oracle.ragged_batch(seed, dtype=dtype)[0].packed
        mask_NT = packed.action_NT.numpy() & (packed.weight_N.numpy()[:, None] > 0)
        tokens_N = mask_NT.sum(1)
        rows_with_tokens, rows_kept = (tokens_N > 0).sum(), (packed.weight_N > 0).sum().item()
        assert rows_with_tokens < rows_kept < packed.num_rollouts
        expected = {
            "token_mean": mask_NT / tokens_N.sum(),
            "sequence_mean": mask_NT / (rows_with_tokens * np.maximum(tokens_N, 1)[:, None]),
            "fixed_length": mask_NT / (rows_kept * MAX_NEW_TOKENS),
        }
        for aggregation, expected_NT in expected.items():
            found_NT = loss_weights(packed, aggregation, MAX_NEW_TOKENS)
            assert found_NT.dtype == dtype
            np.testing.assert_allclose(found_NT.numpy(), expected_NT, rtol=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_are_zero_when_nothing_trains(aggregation):
    packed = oracle.ragged_batch()[0].packed
    for changed in (
        replace(packed, weight_N=torch.zeros_like(packed.weight_N)),
        replace(packed, action_NT=torch.zeros_like(packed.action_NT)),
    ):
        found_NT = loss_weights(changed, aggregation, MAX_NEW_TOKENS)
        assert found_NT.shape == packed.tokens_NT.shape
        assert not found_NT.any()


def test_an_unknown_aggregation_is_named():
    with pytest.raises(ValueError, match="batch_mean"):
        loss_weights(oracle.ragged_batch()[0].packed, "batch_mean", MAX_NEW_TOKENS)
