"""GRPO: the group's mean is the baseline, its standard deviation the scale; clipped objective.

Dr.GRPO and DAPO differ by settings (`scale`, `clip_high`), not by code.
"""

from __future__ import annotations

from stepladder.core.control import Knobs
from stepladder.engine.advantage import group_advantages, spread
from stepladder.engine.batch import Advantages, PackedRollouts, RolloutBatch, TokenLogprobs
from stepladder.engine.loss import LossSettings, LossTerms, policy_loss
from stepladder.spec.algorithm import GrpoSpec
from stepladder.spec.run import KlSpec


class Grpo:
    """Group-relative policy optimisation."""

    def __init__(self, spec: GrpoSpec, kl: KlSpec) -> None:
        self.spec = spec
        self.kl = kl

    def advantages(self, packed: PackedRollouts) -> Advantages:
        """Return each rollout's standing in its group, on all of its action tokens."""
        total_N = packed.reward_N + (packed.token_reward_NT * packed.action_NT).sum(1)
        advantage_N = group_advantages(
            total_N,
            packed.group_N,
            packed.weight_N,
            scale=self.spec.scale,
            std_floor=self.spec.std_floor,
        )
        return Advantages(advantage_NT=spread(advantage_N, packed.action_NT))

    def loss(
        self, batch: RolloutBatch, new: TokenLogprobs, knobs: Knobs, num_tokens: float
    ) -> LossTerms:
        """Return the clipped objective with KL (when it sits in the loss) and entropy terms."""
        settings = LossSettings(
            clip_low=self.spec.clip_low,
            clip_high=self.spec.clip_high,
            kl_coef=knobs.kl_coef if self.kl.placement == "loss" else 0.0,
            kl_estimator=self.kl.estimator,
            entropy_coef=knobs.entropy_coef,
            num_tokens=num_tokens,
        )
        return policy_loss(batch, new, settings)
