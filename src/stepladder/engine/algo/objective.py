"""What every algorithm shares: token weights and the objective; each adds its advantages."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from stepladder.core.control import Knobs
from stepladder.engine import aggregate
from stepladder.engine.batch import PackedRollouts, RolloutBatch, TokenLogprobs
from stepladder.engine.loss import LossSettings, LossTerms, policy_loss
from stepladder.spec.algorithm import PpoSpec
from stepladder.spec.run import RunSpec


class Objective:
    """The objective as a run's settings ask for it; without running statistics."""

    def __init__(self, run: RunSpec) -> None:
        self.run = run

    def loss_weights(self, packed: PackedRollouts) -> Tensor:
        """Return [N, T] what each action token's loss counts in one update of these rollouts."""
        run = self.run
        return aggregate.loss_weights(
            packed, run.algorithm.aggregation, run.sampling.max_new_tokens
        )

    def loss(self, batch: RolloutBatch, new: TokenLogprobs, knobs: Knobs) -> LossTerms:
        """Return this part's share of the loss: token losses times `batch.loss_weight_NT`."""
        return policy_loss(batch, new, self.settings(knobs))

    def settings(self, knobs: Knobs) -> LossSettings:
        """Return what the objective needs beside the batch."""
        spec, kl = self.run.algorithm, self.run.kl
        critic = spec if isinstance(spec, PpoSpec) else None
        return LossSettings(
            objective=spec.objective,
            ratio=spec.ratio,
            clip_low=spec.clip_low,
            clip_high=spec.clip_high,
            dual_clip=spec.dual_clip,
            kl_coef=knobs.kl_coef if kl.placement == "loss" else 0.0,
            kl_estimator=kl.estimator,
            entropy_coef=knobs.entropy_coef,
            importance_cap=spec.importance_cap,
            importance_level=spec.importance_level,
            value_coef=critic.value_coef if critic else 0.0,
            value_clip=critic.value_clip if critic else None,
        )

    def state(self) -> Mapping[str, float]:
        """Return nothing: only running statistics need a state."""
        return {}

    def load(self, state: Mapping[str, float]) -> None:
        """Refuse a state that this algorithm cannot have written."""
        if state:
            raise ValueError(f"{self.run.algorithm.type} keeps no state, got {sorted(state)}")
