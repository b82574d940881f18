"""Advantages of group methods: pure functions on tensors.

Conventions (numerics.md 5.8): ddof 1, a floor under the standard deviation, zero variance tested by
exact equality, masked rollouts (weight 0) neither counted nor credited.
Axes: N rollouts, T tokens, P groups.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_advantages(
    reward_N: Tensor,
    group_N: Tensor,
    weight_N: Tensor,
    *,
    scale: str = "std",
    std_floor: float = 1e-3,
) -> Tensor:
    """Return (r - mean) / max(std, floor) within each group; scale "none" leaves it centred.

    Groups whose kept rewards are all equal, or that kept fewer than two, get exactly 0.
    """
    num_groups = int(group_N.max()) + 1
    kept_N = weight_N > 0
    reward_N, zero_P = reward_N.double(), torch.zeros(num_groups, dtype=torch.float64)
    zero_P = zero_P.to(reward_N.device)
    count_P = zero_P.index_add(0, group_N, kept_N.double())
    total_P = zero_P.index_add(0, group_N, reward_N * kept_N)
    centred_N = (reward_N - (total_P / count_P.clamp_min(1))[group_N]) * kept_N
    if scale == "std":
        squares_P = zero_P.index_add(0, group_N, centred_N.square())
        std_P = (squares_P / (count_P - 1).clamp_min(1)).sqrt()
        centred_N = centred_N / std_P.clamp_min(std_floor)[group_N]
    varied_P = has_variance(reward_N, group_N, kept_N, num_groups)
    return torch.where(kept_N & varied_P[group_N], centred_N, 0.0).float()


def has_variance(reward_N: Tensor, group_N: Tensor, kept_N: Tensor, num_groups: int) -> Tensor:
    """Return [P] whether a group's kept rewards differ, by exact comparison."""
    fill = reward_N.new_full((num_groups,), float("inf"))
    low_P = fill.scatter_reduce(0, group_N, reward_N.masked_fill(~kept_N, float("inf")), "amin")
    high_P = (-fill).scatter_reduce(
        0, group_N, reward_N.masked_fill(~kept_N, float("-inf")), "amax"
    )
    return low_P < high_P


def spread(advantage_N: Tensor, action_NT: Tensor) -> Tensor:
    """Return a rollout's advantage on each of its action tokens, 0 elsewhere."""
    return advantage_N[:, None] * action_NT
