"""PPO: generalised advantage estimation over action tokens, on a critic's values."""

from __future__ import annotations

import torch

from stepladder.engine.advantage import gae, token_rewards, whiten
from stepladder.engine.algo.objective import Objective
from stepladder.engine.batch import Advantages, PackedRollouts
from stepladder.spec.algorithm import PpoSpec
from stepladder.spec.run import RunSpec


class Ppo(Objective):
    """Proximal policy optimisation with a critic."""

    def __init__(self, run: RunSpec) -> None:
        super().__init__(run)
        assert isinstance(run.algorithm, PpoSpec), f"{run.algorithm.type} has no critic"
        self.spec = run.algorithm

    def advantages(self, packed: PackedRollouts) -> Advantages:
        """Return advantages, whitened if asked, and the critic's targets from before whitening."""
        spec = self.spec
        if packed.value_NT is None:
            raise ValueError("value_NT is missing: ask the critic before advantages")
        if spec.bootstrap_truncated and packed.last_value_N is None:
            raise ValueError("last_value_N is missing: bootstrap_truncated needs it")
        live_NT = packed.mask_NT > 0
        advantage_NT, return_NT = gae(
            token_rewards(packed, packed.reward_N),
            packed.value_NT,
            live_NT,
            spec.gamma,
            spec.gae_lambda,
            packed.last_value_N if spec.bootstrap_truncated else None,
        )
        if spec.whiten:
            advantage_NT = whiten(advantage_NT, packed.mask_NT, ddof=1, floor=spec.std_floor)
        dtype = torch.promote_types(packed.reward_N.dtype, packed.value_NT.dtype)
        return Advantages(advantage_NT=advantage_NT.to(dtype), return_NT=return_NT.to(dtype))
