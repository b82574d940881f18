"""Group advantages in closed form (numerics.md 5.1)."""

import numpy as np
import pytest
import torch

from stepladder.engine.advantage import group_advantages, spread


def advantages(*groups, weights=None, **settings):
    reward_N = torch.tensor([r for group in groups for r in group])
    group_N = torch.tensor([i for i, group in enumerate(groups) for _ in group])
    weight_N = torch.ones(len(reward_N)) if weights is None else torch.tensor(weights)
    return group_advantages(reward_N, group_N, weight_N, **settings)


def test_one_winner_of_eight():
    found = advantages([1.0] + [0.0] * 7)
    assert found[0].item() == pytest.approx(2.4749, abs=1e-4)
    assert found[1].item() == pytest.approx(-0.3536, abs=1e-4)


def test_equals_numpy_per_group():
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=n).tolist() for n in (4, 8, 3)]
    expected = [(np.array(g) - np.mean(g)) / np.std(g, ddof=1) for g in groups]
    np.testing.assert_allclose(advantages(*groups), np.concatenate(expected), atol=1e-5)


def test_centred_only():
    assert advantages([1.0, 0.0], scale="none").tolist() == [0.5, -0.5]


def test_equal_rewards_get_exactly_zero():
    assert advantages([0.1] * 7, [0.3] * 4).eq(0).all()


def test_float_noise_does_not_become_a_full_size_update():
    found = advantages([0.50001] * 4 + [0.5] * 4)
    assert found.abs().max().item() < 0.01


def test_masked_rollouts_neither_count_nor_are_credited():
    found = advantages([1.0, 0.0, 50.0, 0.0], weights=[1.0, 1.0, 0.0, 1.0])
    expected = (np.array([1.0, 0.0, 0.0]) - 1 / 3) / np.std([1.0, 0.0, 0.0], ddof=1)
    np.testing.assert_allclose(found[[0, 1, 3]], expected, atol=1e-6)
    assert found[2] == 0


def test_a_group_with_one_kept_member_gets_zero():
    assert advantages([1.0, 0.0], weights=[1.0, 0.0]).eq(0).all()


def test_spread_fills_action_tokens_only():
    action_NT = torch.tensor([[False, True, True], [False, False, True]])
    assert spread(torch.tensor([2.0, -1.0]), action_NT).tolist() == [[0, 2, 2], [0, 0, -1]]
