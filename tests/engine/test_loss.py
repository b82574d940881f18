"""The objective against a float64 numpy oracle, and its independence of how a batch is split."""

import numpy as np
import pytest
import torch

from stepladder.engine.batch import PackedRollouts, RolloutBatch, TokenLogprobs
from stepladder.engine.loss import LossSettings, clipped_objective, policy_loss

N, T = 6, 5


def random_batch(seed=0, **changes):
    g = torch.Generator().manual_seed(seed)

    def normal():
        return torch.randn(N, T, generator=g, dtype=torch.float64)

    action_NT = torch.rand(N, T, generator=g) < 0.7
    action_NT[:, 0] = False
    fields = {
        "tokens_NT": torch.zeros(N, T, dtype=torch.long),
        "action_NT": action_NT,
        "sampler_logp_NT": normal(),
        "token_reward_NT": torch.zeros(N, T),
        "reward_N": torch.zeros(N),
        "weight_N": torch.tensor([1.0, 1, 0, 1, 1, 1], dtype=torch.float64),
        "group_N": torch.arange(N) // 2,
        "version_N": torch.zeros(N, dtype=torch.long),
        "prompt_length_N": torch.ones(N, dtype=torch.long),
        "length_N": torch.full((N,), T),
        "terminal_N": torch.ones(N, dtype=torch.bool),
        "truncated_N": torch.zeros(N, dtype=torch.bool),
        "old_logp_NT": normal(),
        "ref_logp_NT": normal(),
    }
    packed = PackedRollouts(**{**fields, **changes})
    new = TokenLogprobs(logp_NT=normal(), entropy_NT=normal().abs())
    return RolloutBatch(packed=packed, advantage_NT=normal() * action_NT), new


SETTINGS = LossSettings(
    clip_low=0.2, clip_high=0.3, kl_coef=0.05, entropy_coef=0.02, num_tokens=17.0
)


def oracle(batch, new, settings):
    """Plain numpy, token by token."""
    packed, total, low, high = batch.packed, 0.0, 0, 0
    for n in range(N):
        for t in range(T):
            if not packed.action_NT[n, t] or packed.weight_N[n] == 0:
                continue
            logp, a = new.logp_NT[n, t].item(), batch.advantage_NT[n, t].item()
            ratio = np.exp(logp - packed.old_logp_NT[n, t].item())
            clipped = min(max(ratio, 1 - settings.clip_low), 1 + settings.clip_high)
            d = logp - packed.ref_logp_NT[n, t].item()
            total += -min(ratio * a, clipped * a)
            total += settings.kl_coef * (np.exp(-d) - 1 + d)
            total -= settings.entropy_coef * new.entropy_NT[n, t].item()
            low += ratio < 1 - settings.clip_low and a < 0
            high += ratio > 1 + settings.clip_high and a > 0
    return total / settings.num_tokens, low, high


def test_equals_the_oracle():
    batch, new = random_batch()
    found = policy_loss(batch, new, SETTINGS)
    loss, low, high = oracle(batch, new, SETTINGS)
    assert found.loss.item() == pytest.approx(loss, rel=1e-12)
    assert (found.sums["clip_low"], found.sums["clip_high"]) == (low, high)
    assert low and high
    assert found.sums["tokens"] == batch.packed.mask_NT.sum()


def test_any_split_gives_the_same_loss_and_gradient():
    batch, new = random_batch()
    grads = []
    for size in (N, 3, 1):
        logp = new.logp_NT.clone().requires_grad_()
        parts = []
        for at in range(0, N, size):
            rows = slice(at, at + size)
            part = TokenLogprobs(logp_NT=logp[rows], entropy_NT=new.entropy_NT[rows])
            parts.append(policy_loss(batch.rows(rows), part, SETTINGS).loss)
        sum(parts).backward()
        grads.append((sum(parts).detach(), logp.grad))
    for loss, grad in grads[1:]:
        torch.testing.assert_close(loss, grads[0][0])
        torch.testing.assert_close(grad, grads[0][1])


def test_without_old_logprobs_the_ratio_is_exactly_one():
    batch, new = random_batch(old_logp_NT=None, ref_logp_NT=None)
    logp = new.logp_NT.clone().requires_grad_()
    settings = LossSettings(clip_low=0.2, clip_high=0.2, num_tokens=1.0)
    found = policy_loss(batch, TokenLogprobs(logp_NT=logp, entropy_NT=new.entropy_NT), settings)
    found.loss.backward()
    assert found.ratio_max == 1
    assert found.sums["clip_low"] == found.sums["clip_high"] == 0
    torch.testing.assert_close(logp.grad, -batch.advantage_NT * batch.packed.mask_NT)


@pytest.mark.parametrize(
    ("ratio", "advantage", "low", "high", "gradient"),
    [
        (1.5, 1.0, False, True, False),
        (1.5, -1.0, False, False, True),
        (0.5, -1.0, True, False, False),
        (0.5, 1.0, False, False, True),
        (1.1, 1.0, False, False, True),
    ],
)
def test_the_clip_acts_by_sign(ratio, advantage, low, high, gradient):
    logp = torch.tensor([[np.log(ratio)]], requires_grad=True)
    loss, _, is_low, is_high = clipped_objective(
        logp, torch.zeros(1, 1), torch.tensor([[advantage]]), 0.2, 0.2
    )
    loss.sum().backward()
    assert (bool(is_low), bool(is_high), bool(logp.grad != 0)) == (low, high, gradient)


def test_kl_is_measured_but_not_paid_when_its_coefficient_is_zero():
    batch, new = random_batch()
    free = LossSettings(clip_low=0.2, clip_high=0.3, num_tokens=17.0)
    found = policy_loss(batch, new, free)
    assert found.sums["kl_k3"] > 0
    assert found.loss.item() == pytest.approx(oracle(batch, new, free)[0])
