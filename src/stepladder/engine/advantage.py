"""Credit in pure functions on tensors: group statistics, whitening, discounted returns, GAE.

Conventions (numerics.md 5.8): float64 inside; zero variance tested by exact equality; a floor under
every standard deviation; masked rollouts (weight 0) neither counted nor credited; masked tokens
skipped; the scalar reward sits on the last trainable token.
Axes: N rollouts, T tokens, P groups, G places in a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stepladder.engine.batch import PackedRollouts

Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["std", "leave_one_out_std", "none"]


def total_rewards(packed: PackedRollouts) -> Tensor:
    """Return [N] float64 scalar plus token rewards on actions; 0 for masked rollouts."""
    token_NT = torch.where(packed.action_NT, packed.token_reward_NT.double(), 0.0)
    return torch.where(packed.weight_N > 0, packed.reward_N.double() + token_NT.sum(1), 0.0)


def token_rewards(packed: PackedRollouts, reward_N: Tensor) -> Tensor:
    """Return [N, T] float64 token rewards on actions, with `reward_N` on each row's last action."""
    live_NT = packed.mask_NT > 0
    place_T = torch.arange(live_NT.shape[1], device=live_NT.device)
    last_N = torch.where(live_NT, place_T, -1).amax(1)
    token_NT = torch.where(live_NT, packed.token_reward_NT.double(), 0.0)
    return torch.where(place_T == last_N[:, None], token_NT + reward_N.double()[:, None], token_NT)


def group_advantages(  # noqa: PLR0913 the settings on which peers differ, each by its name
    reward_N: Tensor,
    group_N: Tensor,
    weight_N: Tensor,
    *,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    ddof: int = 1,
    std_floor: float = 1e-3,
    std_epsilon: float = 0.0,
) -> Tensor:
    """Return (r - baseline) / (max(std, floor) + epsilon) within each group.

    Groups whose kept rewards are all equal, or that kept fewer than two, get exactly 0. With
    `leave_one_out_std` nothing is divided where the others are all equal or too few.
    """
    kept_N = weight_N > 0
    place_N, num_groups = _places(group_N), int(group_N.max()) + 1
    kept_PG = kept_N.new_zeros((num_groups, int(place_N.max()) + 1))
    kept_PG[group_N, place_N] = kept_N
    reward_PG = torch.zeros_like(kept_PG, dtype=torch.float64)
    reward_PG[group_N, place_N] = torch.where(kept_N, reward_N.double(), 0.0)

    mean_PG, std_PG = _mean_and_std(reward_PG, kept_PG, ddof)
    mean_PG, std_PG = mean_PG[:, None], std_PG[:, None]
    if baseline == "leave_one_out" or scale == "leave_one_out_std":
        same_GG = torch.eye(kept_PG.shape[1], dtype=torch.bool, device=kept_PG.device)
        others = _mean_and_std(reward_PG[:, None, :], kept_PG[:, None, :] & ~same_GG, ddof)
        mean_PG = others[0] if baseline == "leave_one_out" else mean_PG
        std_PG = others[1] if scale == "leave_one_out_std" else std_PG
    advantage_PG = reward_PG - mean_PG
    if scale != "none":
        divisor_PG = std_PG.clamp_min(std_floor) + std_epsilon
        advantage_PG = advantage_PG / torch.where(std_PG > 0, divisor_PG, 1.0)
    credited_PG = kept_PG & (kept_PG.sum(1, keepdim=True) > 1)
    advantage_PG = torch.where(credited_PG, advantage_PG, 0.0)
    dtype = torch.promote_types(reward_N.dtype, torch.float32)
    return advantage_PG[group_N, place_N].to(dtype)


def spread(advantage_N: Tensor, action_NT: Tensor) -> Tensor:
    """Return a rollout's advantage on each of its action tokens, 0 elsewhere."""
    return advantage_N[:, None] * action_NT


def gae(
    reward_NT: Tensor,
    value_NT: Tensor,
    action_NT: Tensor,
    gamma: float,
    lam: float,
    last_value_N: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return float64 advantages and returns (advantage + value) of action tokens; 0 elsewhere.

    Masked tokens are skipped: value and advantage are carried across them undiscounted.
    `last_value_N` is the value of what follows the last action; None is 0.
    """
    reward_NT, value_NT = reward_NT.double(), value_NT.double()
    zero_N = torch.zeros_like(reward_NT[:, 0])
    value_N = zero_N if last_value_N is None else last_value_N.double()
    advantage_N, advantage_NT = zero_N, torch.zeros_like(reward_NT)
    for t in reversed(action_NT.any(0).nonzero()[:, 0].tolist()):
        delta_N = reward_NT[:, t] + gamma * value_N - value_NT[:, t]
        action_N = action_NT[:, t]
        advantage_N = torch.where(action_N, delta_N + gamma * lam * advantage_N, advantage_N)
        value_N = torch.where(action_N, value_NT[:, t], value_N)
        advantage_NT[:, t] = torch.where(action_N, advantage_N, 0.0)
    return advantage_NT, torch.where(action_NT, advantage_NT + value_NT, 0.0)


def discounted_returns(reward_NT: Tensor, action_NT: Tensor, gamma: float) -> Tensor:
    """Return float64 r_t + gamma * r_t' + ... over this and later action tokens; 0 elsewhere."""
    return gae(reward_NT, torch.zeros_like(reward_NT), action_NT, gamma, 1.0)[0]


@dataclass(frozen=True, slots=True)
class RunningMoments:
    """Count, mean and sum of squared deviations, in one pass over any number of batches."""

    count: float = 0.0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, x: Tensor, weight: Tensor) -> RunningMoments:
        """Return the moments of some values; values of weight 0 do not count."""
        kept = weight > 0
        values, weights = x[kept].double(), weight[kept].double()
        if not len(values):
            return cls()
        count, low = float(weights.sum()), float(values.min())
        if low == float(values.max()):  # A rounded mean would leave noise where nothing varies.
            return cls(count, low, 0.0)
        mean = float((weights * values).sum()) / count
        return cls(count, mean, float((weights * (values - mean).square()).sum()))

    def merge(self, other: RunningMoments) -> RunningMoments:
        """Return the moments of both sets together (Chan et al.)."""
        count = self.count + other.count
        if not count:
            return self
        delta, share = other.mean - self.mean, other.count / count
        m2 = self.m2 + other.m2 + delta * delta * self.count * share
        return RunningMoments(count, self.mean + delta * share, m2)

    def std(self, ddof: int) -> float:
        """Return the standard deviation; 0 where too few values were seen."""
        return (self.m2 / (self.count - ddof)) ** 0.5 if self.count > ddof else 0.0

    def normalise(self, x: Tensor, ddof: int, floor: float) -> Tensor:
        """Return (x - mean) / max(std, floor) in float64; centred alone where both are 0."""
        return (x.double() - self.mean) / (max(self.std(ddof), floor) or 1.0)

    def state(self) -> dict[str, float]:
        """Return JSON values for `from_state`."""
        return {"count": self.count, "mean": self.mean, "m2": self.m2}

    @classmethod
    def from_state(cls, state: Mapping[str, float]) -> RunningMoments:
        """Return saved moments; those of nothing from an empty state."""
        return cls(state["count"], state["mean"], state["m2"]) if state else cls()


def whiten(x_NT: Tensor, weight_NT: Tensor, ddof: int, floor: float) -> Tensor:
    """Return float64 values of mean 0 and standard deviation 1 where weighted; 0 elsewhere."""
    normal_NT = RunningMoments.of(x_NT, weight_NT).normalise(x_NT, ddof, floor)
    return torch.where(weight_NT > 0, normal_NT, 0.0)


def _places(group_N: Tensor) -> Tensor:
    # Index of each rollout among those of its group; groups need not be contiguous.
    order_N = group_N.argsort(stable=True)
    sizes_P = group_N.bincount()
    starts_P = sizes_P.cumsum(0) - sizes_P
    place_N = torch.empty_like(group_N)
    index_N = torch.arange(len(group_N), device=group_N.device)
    place_N[order_N] = index_N - starts_P[group_N[order_N]]
    return place_N


def _mean_and_std(x: Tensor, kept: Tensor, ddof: int) -> tuple[Tensor, Tensor]:
    # Over the last axis; exactly x and 0 where all kept values are equal, 0 and 0 where none is.
    count = kept.sum(-1).double()
    low = torch.where(kept, x, torch.inf).amin(-1)
    high = torch.where(kept, x, -torch.inf).amax(-1)
    mean = torch.where(kept, x, 0.0).sum(-1) / count.clamp_min(1)
    mean = torch.where(low == high, low, mean)
    squares = torch.where(kept, (x - mean[..., None]).square(), 0.0).sum(-1)
    std = (squares / (count - ddof).clamp_min(1)).sqrt()
    return mean, torch.where((low < high) & (count > ddof), std, 0.0)
