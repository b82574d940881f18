"""Algorithms: credit against NumPy on ragged batches, the objective they ask for, their state."""

import json
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch

from stepladder.core.control import Knobs
from stepladder.engine.algo.build import ALGORITHMS, build_algorithm
from stepladder.engine.seams import Algorithm
from stepladder.spec.algorithm import ALGORITHM_NAMES
from stepladder.spec.run import RunSpec

GROUP_N = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
KNOBS = Knobs(kl_coef=0.03, entropy_coef=0.01)
VARIANTS = [
    *[{"type": name} for name in ALGORITHM_NAMES],
    {"type": "reinforce", "statistics": "running", "gamma": 0.9},
    {"type": "reinforce", "level": "sequence", "baseline": "group"},
    {"type": "ppo", "whiten": False, "bootstrap_truncated": True},
]
SEEDS = range(4)


def algorithm(section, **changes):
    return build_algorithm(RunSpec.model_validate({"algorithm": section, **changes}))


def rollouts(seed=0, masked=0.0):
    """Return ragged rollouts with an empty and a failed one; `masked` stands where nothing trains.

    The two draws differ in nothing else.
    """
    rng = np.random.default_rng(seed)
    reward_N = torch.tensor(rng.integers(0, 4, 12) / 4)
    token_NT = torch.tensor(rng.normal(0, 0.1, (12, 9)))
    truncated_N = torch.tensor(rng.random(12) < 0.5)
    plain = oracle.ragged_batch(seed, n=12)[0].packed
    live_NT = plain.mask_NT > 0
    reward_N[oracle.FAILED] = masked
    return replace(
        plain,
        reward_N=reward_N,
        token_reward_NT=token_NT.where(live_NT, masked),
        value_NT=plain.value_NT.where(live_NT, masked),
        group_N=GROUP_N,
        truncated_N=truncated_N,
        last_value_N=torch.tensor(rng.normal(size=12)) * truncated_N,
    )


def in_rows(packed):
    """Return (row, places of actions, token rewards with the scalar on the last) of live rows."""
    found = []
    for row in np.flatnonzero(packed.mask_NT.numpy().any(1)):
        at = np.flatnonzero(packed.action_NT[row])
        reward = packed.token_reward_NT[row, at].numpy().copy()
        reward[-1] += packed.reward_N[row]
        found.append((row, at, reward))
    return found


def kept_totals(packed):
    """Return total rewards; NaN for the failed rollout."""
    token_NT = packed.token_reward_NT.numpy() * packed.action_NT.numpy()
    total_N = packed.reward_N.numpy() + token_NT.sum(1)
    return np.where(packed.weight_N > 0, total_N, np.nan)


def group_mean(packed):
    total_N = kept_totals(packed)
    return np.array([np.nanmean(total_N[GROUP_N.numpy() == g]) for g in GROUP_N.numpy()])


def test_names_and_order_are_the_specs():
    assert tuple(ALGORITHMS) == ALGORITHM_NAMES
    for name in ALGORITHM_NAMES:
        built = algorithm({"type": name})
        assert isinstance(built, Algorithm)
        assert type(built) is ALGORITHMS[name]


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "cispo"])
@pytest.mark.parametrize("seed", SEEDS)
def test_group_credit_over_the_standard_deviation(name, seed):
    packed = rollouts(seed)
    total_N, groups = kept_totals(packed), GROUP_N.numpy()
    std_N = np.array([np.nanstd(total_N[groups == g], ddof=1) for g in groups])
    expected_N = np.nan_to_num((total_N - group_mean(packed)) / std_N)
    found_NT = algorithm({"type": name}).advantages(packed).advantage_NT
    np.testing.assert_allclose(found_NT, expected_N[:, None] * packed.action_NT.numpy(), atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_group_credit_without_a_scale(seed):
    packed = rollouts(seed)
    centred_N = np.nan_to_num(kept_totals(packed) - group_mean(packed))
    found_NT = algorithm({"type": "dr_grpo"}).advantages(packed).advantage_NT
    np.testing.assert_allclose(found_NT, centred_N[:, None] * packed.action_NT.numpy(), atol=1e-6)
    # The mean of the others: centred rewards times G / (G - 1); one of group 0 failed.
    others_N = centred_N * np.array([4 / 3] * 5 + [4 / 3] * 4 + [3 / 2] * 3)
    found_NT = algorithm({"type": "rloo"}).advantages(packed).advantage_NT
    np.testing.assert_allclose(found_NT, others_N[:, None] * packed.action_NT.numpy(), atol=1e-6)


def expected_returns(packed, gamma, baseline_N):
    found = []
    for row, at, reward in in_rows(packed):
        reward[-1] -= baseline_N[row]
        later = [sum(gamma**k * r for k, r in enumerate(reward[i:])) for i in range(len(at))]
        found.append((row, at, np.array(later)))
    return found


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("baseline", ["none", "group"])
@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_credit_over_batch_statistics(level, baseline, seed):
    packed = rollouts(seed)
    baseline_N = group_mean(packed) if baseline == "group" else np.zeros(12)
    rows = expected_returns(packed, 0.9, baseline_N)
    counted = np.concatenate([r if level == "token" else r[:1] for _, _, r in rows])
    expected_NT = np.zeros((12, 9))
    for row, at, returns in rows:
        expected_NT[row, at] = (returns - counted.mean()) / counted.std(ddof=1)
    section = {"type": "reinforce", "level": level, "baseline": baseline, "gamma": 0.9}
    found = algorithm(section).advantages(packed)
    np.testing.assert_allclose(found.advantage_NT, expected_NT, atol=1e-6)
    assert found.return_NT is None


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_running_statistics_cover_every_batch_and_survive_a_checkpoint(level):
    section = {"type": "reinforce", "statistics": "running", "level": level, "ddof": 0}
    built, seen = algorithm(section), []
    for seed in SEEDS:
        packed = rollouts(seed)
        rows = expected_returns(packed, 1.0, np.zeros(12))
        seen.extend(np.concatenate([r if level == "token" else r[:1] for _, _, r in rows]))
        expected_NT = np.zeros((12, 9))
        for row, at, returns in rows:
            expected_NT[row, at] = (returns - np.mean(seen)) / np.std(seen)
        restored = algorithm(section)
        restored.load(json.loads(json.dumps(built.state())))
        found_NT = built.advantages(packed).advantage_NT
        np.testing.assert_allclose(found_NT, expected_NT, atol=1e-6)
        assert torch.equal(restored.advantages(packed).advantage_NT, found_NT)
        assert restored.state() == built.state() != {}


def test_algorithms_without_running_statistics_keep_no_state():
    for section in ({"type": "grpo"}, {"type": "reinforce"}, {"type": "ppo"}):
        built = algorithm(section)
        built.advantages(rollouts())
        assert built.state() == {}
        built.load({})
        with pytest.raises(ValueError, match="keeps no state"):
            built.load({"mean": 1.0})


def expected_gae(packed, gamma, lam, last_N):
    advantage_NT, return_NT = np.zeros((2, 12, 9))
    for row, at, reward in in_rows(packed):
        value = np.append(packed.value_NT[row, at].numpy(), last_N[row])
        advantage = 0.0
        for i in reversed(range(len(at))):
            advantage = reward[i] + gamma * value[i + 1] - value[i] + gamma * lam * advantage
            advantage_NT[row, at[i]], return_NT[row, at[i]] = advantage, advantage + value[i]
    return advantage_NT, return_NT


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_credit_and_targets(bootstrap, whiten, seed):
    packed = rollouts(seed)
    last_N = packed.last_value_N.numpy() * bootstrap
    expected_NT, return_NT = expected_gae(packed, 0.98, 0.9, last_N)
    if whiten:
        live_NT = packed.mask_NT.numpy() > 0
        tokens = expected_NT[live_NT]
        expected_NT[live_NT] = (tokens - tokens.mean()) / tokens.std(ddof=1)
    section = {"type": "ppo", "gamma": 0.98, "gae_lambda": 0.9}
    section |= {"bootstrap_truncated": bootstrap, "whiten": whiten}
    found = algorithm(section).advantages(packed)
    np.testing.assert_allclose(found.advantage_NT, expected_NT, atol=1e-6)
    np.testing.assert_allclose(found.return_NT, return_NT, atol=1e-6)


def test_ppo_says_which_values_are_missing():
    with pytest.raises(ValueError, match="value_NT is missing"):
        algorithm({"type": "ppo"}).advantages(replace(rollouts(), value_NT=None))
    with pytest.raises(ValueError, match="last_value_N is missing"):
        algorithm(VARIANTS[-1]).advantages(replace(rollouts(), last_value_N=None))


def credit(section, packed):
    found = algorithm(section).advantages(packed)
    return found.advantage_NT, found.advantage_NT if found.return_NT is None else found.return_NT


@pytest.mark.parametrize("section", VARIANTS, ids=str)
def test_what_stands_at_masked_tokens_never_matters(section):
    for plain, poisoned in zip(
        credit(section, rollouts()), credit(section, rollouts(masked=torch.nan)), strict=True
    ):
        assert torch.equal(plain, poisoned)
        assert plain[rollouts().mask_NT == 0].eq(0).all()
        assert plain.abs().sum() > 0


@pytest.mark.parametrize("section", VARIANTS, ids=str)
def test_the_order_of_rows_changes_nothing(section):
    packed = rollouts()
    order = torch.tensor(np.random.default_rng(0).permutation(12))
    for plain, moved in zip(
        credit(section, packed), credit(section, packed.rows(order)), strict=True
    ):
        np.testing.assert_allclose(moved, plain[order], atol=1e-9)


@pytest.mark.parametrize("section", [v for v in VARIANTS[:-1] if "gamma" not in v], ids=str)
def test_a_batch_of_equal_rewards_gives_exactly_no_credit(section):
    packed = rollouts()
    equal = {"reward_N": torch.full((12,), 0.1), "token_reward_NT": torch.zeros(12, 9)}
    if section["type"] == "ppo":
        equal["value_NT"] = torch.where(packed.action_NT, 0.1, 0.0)
    assert credit(section, replace(packed, **equal))[0].eq(0).all()


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_the_objective_is_what_the_spec_says(name):
    built = algorithm({"type": name, "importance_cap": 2.0, "dual_clip": 3.0})
    spec, found = built.spec, built.settings(KNOBS)
    for key in ("objective", "ratio", "clip_low", "clip_high", "dual_clip"):
        assert getattr(found, key) == getattr(spec, key)
    assert (found.importance_cap, found.importance_level) == (2.0, "token")
    assert (found.kl_coef, found.kl_estimator, found.entropy_coef) == (0.03, "k3", 0.01)
    critic = (spec.value_coef, spec.value_clip) if name == "ppo" else (0.0, None)
    assert (found.value_coef, found.value_clip) == critic
    in_reward = algorithm({"type": name}, kl={"placement": "reward", "estimator": "k1"})
    assert in_reward.settings(KNOBS).kl_coef == 0


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_token_weights_follow_the_aggregation(name):
    packed, built = rollouts(), algorithm({"type": name}, sampling={"max_new_tokens": 20})
    mask_NT = packed.mask_NT.numpy()
    tokens_N = mask_NT.sum(1)
    expected = {
        "token_mean": mask_NT / mask_NT.sum(),
        "sequence_mean": mask_NT / np.maximum(tokens_N, 1)[:, None] / (tokens_N > 0).sum(),
        "fixed_length": mask_NT / (11 * 20),
    }[built.spec.aggregation]
    np.testing.assert_allclose(built.loss_weights(packed), expected, atol=1e-12)


@pytest.mark.parametrize("section", VARIANTS, ids=str)
def test_the_loss_is_the_oracles(section):
    built = algorithm(section)
    _, new = oracle.ragged_batch(1, n=12)
    packed = rollouts(1)
    found = built.advantages(packed)
    batch = replace(
        oracle.ragged_batch(1, n=12)[0],
        packed=packed,
        advantage_NT=found.advantage_NT,
        return_NT=found.return_NT,
        loss_weight_NT=built.loss_weights(packed),
    )
    if found.return_NT is None:
        new = replace(new, value_NT=None)
    new.logp_NT.requires_grad_()
    terms = built.loss(batch, new, KNOBS)
    assert terms.loss.item() == pytest.approx(
        oracle.objective(batch, new, built.settings(KNOBS))[0], rel=1e-6
    )
    terms.loss.backward()
    assert new.logp_NT.grad.isfinite().all()
    assert new.logp_NT.grad[packed.mask_NT == 0].eq(0).all()
    assert new.logp_NT.grad.abs().sum() > 0
