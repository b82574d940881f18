"""Group methods: a rollout's credit is its standing among the samples of its prompt.

GRPO, Dr. GRPO, DAPO, GSPO, CISPO and RLOO differ by settings (`spec/algorithm.py`), not by code.
"""

from __future__ import annotations

from stepladder.engine.advantage import group_advantages, spread, total_rewards
from stepladder.engine.algo.objective import Objective
from stepladder.engine.batch import Advantages, PackedRollouts
from stepladder.spec.algorithm import GroupSpec
from stepladder.spec.run import RunSpec


class Group(Objective):
    """Every algorithm whose baseline is the group."""

    def __init__(self, run: RunSpec) -> None:
        super().__init__(run)
        assert isinstance(run.algorithm, GroupSpec), f"{run.algorithm.type} has no group"
        self.spec = run.algorithm

    def advantages(self, packed: PackedRollouts) -> Advantages:
        """Return each rollout's standing in its group, on all of its action tokens."""
        advantage_N = group_advantages(
            total_rewards(packed),
            packed.group_N,
            packed.weight_N,
            baseline=self.spec.baseline,
            scale=self.spec.scale,
            ddof=self.spec.ddof,
            std_floor=self.spec.std_floor,
            std_epsilon=self.spec.std_epsilon,
        )
        return Advantages(
            advantage_NT=spread(advantage_N.to(packed.reward_N.dtype), packed.action_NT)
        )
