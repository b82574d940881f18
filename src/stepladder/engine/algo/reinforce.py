"""REINFORCE++: discounted token returns, normalised over the batch or over the run so far."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from stepladder.engine.advantage import (
    RunningMoments,
    discounted_returns,
    group_advantages,
    token_rewards,
    total_rewards,
)
from stepladder.engine.algo.objective import Objective
from stepladder.engine.batch import Advantages, PackedRollouts
from stepladder.spec.algorithm import ReinforceSpec
from stepladder.spec.run import RunSpec


class Reinforce(Objective):
    """Token returns less their mean, over their standard deviation."""

    def __init__(self, run: RunSpec) -> None:
        super().__init__(run)
        assert isinstance(run.algorithm, ReinforceSpec), f"{run.algorithm.type} is not reinforce"
        self.spec = run.algorithm
        self.moments = RunningMoments()

    def advantages(self, packed: PackedRollouts) -> Advantages:
        """Return normalised token returns; with running statistics this batch joins them first."""
        spec, mask_NT = self.spec, packed.mask_NT
        live_NT = mask_NT > 0
        reward_N = packed.reward_N.double()
        if spec.baseline == "group":
            total_N = total_rewards(packed)
            centred_N = group_advantages(total_N, packed.group_N, packed.weight_N, scale="none")
            reward_N = reward_N + (centred_N - total_N)
        return_NT = discounted_returns(token_rewards(packed, reward_N), live_NT, spec.gamma)
        if spec.level == "token":
            moments = RunningMoments.of(return_NT, mask_NT)
        else:
            # A completion's number is its return at its first action.
            first_N = live_NT.int().argmax(1, keepdim=True)
            moments = RunningMoments.of(return_NT.gather(1, first_N)[:, 0], live_NT.any(1))
        if spec.statistics == "running":
            moments = self.moments = self.moments.merge(moments)
        advantage_NT = moments.normalise(return_NT, spec.ddof, spec.std_floor)
        advantage_NT = torch.where(live_NT, advantage_NT, 0.0)
        return Advantages(advantage_NT=advantage_NT.to(packed.reward_N.dtype))

    def state(self) -> Mapping[str, float]:
        """Return the running statistics; nothing when they are the batch's."""
        return self.moments.state() if self.spec.statistics == "running" else {}

    def load(self, state: Mapping[str, float]) -> None:
        """Take up saved statistics."""
        if self.spec.statistics != "running":
            super().load(state)
            return
        self.moments = RunningMoments.from_state(state)
