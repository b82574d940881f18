"""Credit in closed form and against NumPy oracles written from the formulas (numerics.md 5.1-5.3)."""

import json

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepladder.engine.advantage import (
    RunningMoments,
    discounted_returns,
    gae,
    group_advantages,
    spread,
    token_rewards,
    total_rewards,
    whiten,
)

PEERS = {
    "trl": {"std_floor": 0.0, "std_epsilon": 1e-4},
    "verl": {"std_floor": 0.0, "std_epsilon": 1e-6},
    "openrlhf": {"std_floor": 0.0, "std_epsilon": 1e-9},
    "open_instruct": {"std_floor": 0.0, "std_epsilon": 1e-8, "ddof": 0},
    "nemo_rl": {
        "baseline": "leave_one_out",
        "scale": "leave_one_out_std",
        "std_floor": 0.0,
        "std_epsilon": 1e-6,
    },
    "centred": {"scale": "none"},
    "rloo": {"baseline": "leave_one_out", "scale": "none"},
}
"""numerics.md 5.1's peers, by the settings that give their figures."""
TABLE = [
    ([1.0] + [0.0] * 7, "trl", 2.47, -0.35),
    ([1.0] + [0.0] * 7, "verl", 2.47, -0.35),
    ([1.0] + [0.0] * 7, "openrlhf", 2.47, -0.35),
    ([1.0] + [0.0] * 7, "open_instruct", 2.65, -0.38),
    ([1.0] + [0.0] * 7, "nemo_rl", 1.00, -0.38),
    ([1.0] + [0.0] * 7, "centred", 0.875, -0.125),
    ([1.0] + [0.0] * 7, "rloo", 1.00, -0.14),
    ([1.0] * 4 + [0.0] * 4, "trl", 0.94, -0.94),
    ([1.0] * 4 + [0.0] * 4, "verl", 0.94, -0.94),
    ([1.0] * 4 + [0.0] * 4, "openrlhf", 0.94, -0.94),
    ([1.0] * 4 + [0.0] * 4, "open_instruct", 1.00, -1.00),
    ([1.0] * 4 + [0.0] * 4, "nemo_rl", 1.07, -1.07),
    ([1.0] * 4 + [0.0] * 4, "centred", 0.50, -0.50),
    ([1.0] * 4 + [0.0] * 4, "rloo", 0.57, -0.57),
    ([0.50001] * 4 + [0.5] * 4, "trl", 0.047, -0.047),
    ([0.50001] * 4 + [0.5] * 4, "verl", 0.79, -0.79),
    ([0.50001] * 4 + [0.5] * 4, "openrlhf", 0.94, -0.94),
    ([0.50001] * 4 + [0.5] * 4, "open_instruct", 1.00, -1.00),
    ([0.50001] * 4 + [0.5] * 4, "nemo_rl", 0.90, -0.90),
    ([0.50001] * 4 + [0.5] * 4, "centred", 0.000005, -0.000005),
    ([0.50001] * 4 + [0.5] * 4, "rloo", 0.000006, -0.000006),
    ([1.0, 0.0], "trl", 0.71, -0.71),
    ([1.0, 0.0], "verl", 0.71, -0.71),
    ([1.0, 0.0], "openrlhf", 0.71, -0.71),
    ([1.0, 0.0], "open_instruct", 1.00, -1.00),
    ([1.0, 0.0], "nemo_rl", 1.00, -1.00),
    ([1.0, 0.0], "centred", 0.50, -0.50),
    ([1.0, 0.0], "rloo", 1.00, -1.00),
]
SETTINGS = st.fixed_dictionaries(
    {
        "baseline": st.sampled_from(["mean", "leave_one_out"]),
        "scale": st.sampled_from(["std", "leave_one_out_std", "none"]),
        "ddof": st.sampled_from([0, 1]),
        "std_floor": st.sampled_from([0.0, 1e-3, 0.5]),
        "std_epsilon": st.sampled_from([0.0, 1e-4]),
    }
)
SEEDS = st.integers(0, 2**31)


def advantages(*groups, weights=None, **changes):
    reward_N = torch.tensor([r for group in groups for r in group], dtype=torch.float64)
    group_N = torch.tensor([i for i, group in enumerate(groups) for _ in group])
    weight_N = torch.ones(len(reward_N)) if weights is None else torch.tensor(weights)
    return group_advantages(reward_N, group_N, weight_N, **changes)


def drawn(seed):
    """Return rewards (eighths, so that ties and exact shifts occur), groups and weights."""
    rng = np.random.default_rng(seed)
    group_N = np.repeat(np.arange(5), rng.integers(1, 7, 5))
    reward_N = rng.integers(0, 9, len(group_N)) / 8
    return tuple(map(torch.tensor, (reward_N, group_N, (rng.random(len(group_N)) < 0.8) * 1.0)))


def expected_advantages(reward_N, group_N, weight_N, *, baseline, scale, ddof, **divisor):
    """Return the formulas, one rollout at a time."""
    found = np.zeros(len(reward_N))
    for n in np.flatnonzero(weight_N):
        kept = [m for m in np.flatnonzero(weight_N) if group_N[m] == group_N[n]]
        others = reward_N[[m for m in kept if m != n]]
        if len(kept) < 2 or np.ptp(reward_N[kept]) == 0:
            continue
        centred = reward_N[n] - (reward_N[kept] if baseline == "mean" else others).mean()
        counted = {"std": reward_N[kept], "leave_one_out_std": others, "none": others[:0]}[scale]
        if len(counted) > ddof and np.ptp(counted) > 0:
            std = max(np.std(counted, ddof=ddof), divisor["std_floor"])
            centred /= std + divisor["std_epsilon"]
        found[n] = centred
    return found


@pytest.mark.parametrize(("rewards", "peer", "winner", "other"), TABLE)
def test_the_peers_computed_table(rewards, peer, winner, other):
    found = advantages(rewards, **PEERS[peer])
    # Half of the last digit that the table prints.
    digits = {0.875: 3, 0.047: 3, 0.000005: 6, 0.000006: 6}.get(winner, 2)
    assert found[0].item() == pytest.approx(winner, abs=0.5001 * 10**-digits)
    assert found[-1].item() == pytest.approx(other, abs=0.5001 * 10**-digits)


@given(seed=SEEDS, chosen=SETTINGS)
def test_equals_the_oracle_on_ragged_groups(seed, chosen):
    rollouts = drawn(seed)
    expected = expected_advantages(*(x.numpy() for x in rollouts), **chosen)
    np.testing.assert_allclose(group_advantages(*rollouts, **chosen), expected, atol=1e-9)
    reward_N, group_N, weight_N = rollouts
    single = group_advantages(reward_N.float(), group_N, weight_N, **chosen)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, rtol=1e-6, atol=1e-6)


@given(
    value=st.floats(-1e6, 1e6, width=32),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    chosen=SETTINGS,
)
def test_equal_rewards_get_exactly_zero(value, sizes, chosen):
    assert advantages(*[[value] * size for size in sizes], **chosen).eq(0).all()


@given(seed=SEEDS, shift=st.integers(-50, 50), chosen=SETTINGS)
def test_a_shift_of_all_rewards_changes_nothing(seed, shift, chosen):
    reward_N, group_N, weight_N = drawn(seed)
    plain = group_advantages(reward_N, group_N, weight_N, **chosen)
    shifted = group_advantages(reward_N + shift, group_N, weight_N, **chosen)
    np.testing.assert_allclose(shifted, plain, atol=1e-9)


@given(seed=SEEDS, chosen=SETTINGS)
def test_the_order_of_rollouts_and_groups_changes_nothing(seed, chosen):
    reward_N, group_N, weight_N = drawn(seed)
    plain = group_advantages(reward_N, group_N, weight_N, **chosen)
    rng = np.random.default_rng(seed)
    order = torch.tensor(rng.permutation(len(group_N)))
    renamed = torch.tensor(rng.permutation(5))[group_N]
    moved = group_advantages(reward_N[order], renamed[order], weight_N[order], **chosen)
    np.testing.assert_allclose(moved, plain[order], atol=1e-9)


def test_float_noise_does_not_become_a_full_size_update():
    found = advantages([0.50001] * 4 + [0.5] * 4)
    assert 0 < found.abs().max().item() < 0.01


def test_whatever_a_masked_rollout_earned_does_not_matter():
    found = advantages([1.0, 0.0, float("nan"), 0.0], weights=[1.0, 1.0, 0.0, 1.0])
    expected = (np.array([1.0, 0.0, 0.0]) - 1 / 3) / np.std([1.0, 0.0, 0.0], ddof=1)
    np.testing.assert_allclose(found[[0, 1, 3]], expected, atol=1e-6)
    assert found[2] == 0


def test_spread_fills_action_tokens_only():
    action_NT = torch.tensor([[False, True, True], [False, False, True]])
    assert spread(torch.tensor([2.0, -1.0]), action_NT).tolist() == [[0, 2, 2], [0, 0, -1]]


def test_gae_skips_masked_tokens_as_computed_in_numerics_5_3():
    action_NT = torch.tensor([[1, 1, 0, 0, 0, 0, 1, 1]]).bool()
    value_NT = torch.tensor([[0.5, 0.5, 0.2, 0.2, 0.2, 0.2, 0.5, 0.6]])
    reward_NT = torch.tensor([[0.0] * 7 + [1.0]])
    found_NT, return_NT = gae(reward_NT, value_NT, action_NT, 1.0, 0.95)
    expected = [0.433, 0.456, 0, 0, 0, 0, 0.480, 0.400]
    np.testing.assert_allclose(found_NT[0], expected, atol=5e-4)
    np.testing.assert_allclose(return_NT, (found_NT + value_NT) * action_NT, atol=1e-7)


def expected_gae(reward_NT, value_NT, action_NT, gamma, lam, last_value_N):
    """Return sums over what follows, on rows from which masked tokens were cut out."""
    found = np.zeros(action_NT.shape)
    for row, action_T in enumerate(action_NT):
        at = np.flatnonzero(action_T)
        value = np.append(value_NT[row, at], last_value_N[row])
        delta = reward_NT[row, at] + gamma * value[1:] - value[:-1]
        for i, t in enumerate(at):
            found[row, t] = sum((gamma * lam) ** k * d for k, d in enumerate(delta[i:]))
    return found


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.8), (1.0, 1.0), (0.9, 0.0)])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_gae_equals_the_sum_over_what_follows(gamma, lam, bootstrap):
    rng = np.random.default_rng(1)
    reward_NT, value_NT = rng.normal(size=(2, 6, 11))
    action_NT = rng.random((6, 11)) < 0.6
    action_NT[2] = False
    last_N = rng.normal(size=6) if bootstrap else np.zeros(6)
    tensors = [torch.tensor(x) for x in (reward_NT, value_NT, action_NT)]
    found_NT, return_NT = gae(*tensors, gamma, lam, torch.tensor(last_N) if bootstrap else None)
    expected = expected_gae(reward_NT, value_NT, action_NT, gamma, lam, last_N)
    np.testing.assert_allclose(found_NT, expected, atol=1e-12)
    np.testing.assert_allclose(return_NT, np.where(action_NT, expected + value_NT, 0), atol=1e-12)
    assert found_NT[2].eq(0).all()


@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_discounted_returns_count_action_tokens_only(gamma):
    action_NT = torch.tensor([[0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]]).bool()
    reward_NT = torch.tensor([[9.0, 1.0, 9.0, 2.0, 4.0, 9.0], [9.0] * 6])
    found_NT = discounted_returns(reward_NT, action_NT, gamma)
    first, second = 1 + gamma * 2 + gamma**2 * 4, 2 + gamma * 4
    np.testing.assert_allclose(found_NT, [[0, first, 0, second, 4, 0], [0] * 6], atol=1e-6)


def packed(seed=0, **changes):
    """Return a ragged batch with rewards; masked tokens carry NaN."""
    rng = np.random.default_rng(seed)
    batch, _ = oracle.ragged_batch(seed, n=12, **changes)
    reward_N, token_NT = torch.tensor(rng.normal(size=12)), torch.tensor(rng.normal(size=(12, 9)))
    live_NT = batch.packed.mask_NT > 0
    reward_N[oracle.FAILED] = torch.nan
    fields = {"reward_N": reward_N, "token_reward_NT": token_NT.where(live_NT, torch.nan)}
    return oracle.ragged_batch(seed, n=12, **(changes | fields))[0].packed


def test_rewards_end_on_the_last_trainable_token():
    rollouts = packed()
    total_N, token_NT = total_rewards(rollouts), token_rewards(rollouts, rollouts.reward_N)
    for row in range(12):
        at = np.flatnonzero(rollouts.action_NT[row])
        if row == oracle.FAILED:
            assert (total_N[row], token_NT[row].abs().sum()) == (0, 0)
        elif row == oracle.EMPTY:
            assert (total_N[row], token_NT[row].abs().sum()) == (rollouts.reward_N[row], 0)
        else:
            expected = np.zeros(9)
            expected[at] = rollouts.token_reward_NT[row, at]
            expected[at[-1]] += rollouts.reward_N[row]
            np.testing.assert_allclose(token_NT[row], expected, atol=1e-12)
            assert total_N[row].item() == pytest.approx(expected.sum())


@given(seed=SEEDS, ddof=st.sampled_from([0, 1]), floor=st.sampled_from([0.0, 1e-3, 2.0]))
def test_whitening_equals_numpy(seed, ddof, floor):
    rng = np.random.default_rng(seed)
    x_NT, kept_NT = rng.normal(3, 2, (4, 7)), rng.random((4, 7)) < 0.7
    kept_NT[0, :3] = True
    x_NT[~kept_NT] = np.nan
    kept = x_NT[kept_NT]
    expected = np.zeros((4, 7))
    expected[kept_NT] = (kept - kept.mean()) / max(np.std(kept, ddof=ddof), floor)
    found_NT = whiten(torch.tensor(x_NT), torch.tensor(kept_NT).float(), ddof, floor)
    np.testing.assert_allclose(found_NT, expected, atol=1e-9)


@pytest.mark.parametrize("floor", [0.0, 1e-3])
@pytest.mark.parametrize("kept", [0, 1, 7])
def test_equal_values_are_whitened_to_exactly_zero(floor, kept):
    weight_NT = (torch.arange(10) < kept).float()[None]
    assert whiten(torch.full((1, 10), 0.1), weight_NT, 1, floor).eq(0).all()


@settings(max_examples=50)
@given(seed=SEEDS, sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_running_moments_are_those_of_everything_seen(seed, sizes):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(1000, 0.1, size) for size in sizes]
    running = RunningMoments()
    for part in parts:
        running = running.merge(RunningMoments.of(torch.tensor(part), torch.ones(len(part))))
        running = RunningMoments.from_state(json.loads(json.dumps(running.state())))
    seen = np.concatenate(parts)
    assert running.count == len(seen)
    if len(seen) > 1:
        assert running.mean == pytest.approx(seen.mean(), rel=1e-12)
        assert running.std(1) == pytest.approx(np.std(seen, ddof=1), rel=1e-9)
        assert running.std(0) == pytest.approx(np.std(seen), rel=1e-9)


def test_running_moments_of_nothing():
    assert RunningMoments.from_state({}) == RunningMoments().merge(RunningMoments())
    assert RunningMoments().std(1) == 0
