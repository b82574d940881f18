"""From scored groups to a batch: log-probs, values, shaped rewards, advantages.

Order: pack, old and reference log-probs, values, overlong penalty, KL in the reward, advantages,
overlong mask. A masked completion still counts in its group's baseline: its reward was earned.
Axes: N rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stepladder.core.control import Knobs
from stepladder.core.rollout import RolloutGroup
from stepladder.engine.batch import PackedRollouts, RolloutBatch, pack
from stepladder.engine.kl import kl_reward
from stepladder.engine.parts import Learner
from stepladder.spec.algorithm import ObjectiveSpec, PpoSpec
from stepladder.spec.run import RunSpec


def prepare(groups: Sequence[RolloutGroup], learner: Learner, knobs: Knobs) -> RolloutBatch:
    """Return the batch of a step, ready for its updates."""
    run = learner.run
    packed = pack(groups).to(learner.policy.device)
    size = run.optim.microbatch_size or run.optim.minibatch_size or run.batch_size
    if num_updates(run) > 1:
        packed = replace(packed, old_logp_NT=in_parts(learner.policy.logp, packed, size))
    if learner.reference is not None:
        packed = replace(packed, ref_logp_NT=in_parts(learner.reference.logp, packed, size))
    if learner.base is not None:
        packed = replace(packed, base_logp_NT=in_parts(learner.base.logp, packed, size))
    packed = with_values(packed, learner, size)
    packed = penalise_overlong(packed, run.algorithm, run.sampling.max_new_tokens)
    packed = put_kl_in_reward(packed, run, knobs)
    found = learner.algorithm.advantages(packed)
    if run.algorithm.overlong == "mask":
        packed = replace(
            packed,
            weight_N=packed.weight_N * ~packed.truncated_N,
            overlong_N=packed.truncated_N,
        )
    return RolloutBatch(packed=packed, advantage_NT=found.advantage_NT, return_NT=found.return_NT)


def num_updates(run: RunSpec) -> int:
    """Return the optimiser updates of one batch of rollouts."""
    mini = run.optim.minibatch_size or run.batch_size
    return run.algorithm.updates_per_batch * (run.batch_size // mini)


@torch.no_grad()
def in_parts(ask: Callable[[PackedRollouts], Tensor], packed: PackedRollouts, size: int) -> Tensor:
    """Return what a model says of every rollout, `size` at a time, without a gradient."""
    starts = range(0, packed.num_rollouts, size)
    return torch.cat([ask(packed.rows(slice(at, at + size))) for at in starts])


def with_values(packed: PackedRollouts, learner: Learner, size: int) -> PackedRollouts:
    """Return the rollouts with the critic's values; unchanged without a critic."""
    spec = learner.run.algorithm
    if learner.critic is None:
        return packed
    packed = replace(packed, value_NT=in_parts(learner.critic.values, packed, size))
    if isinstance(spec, PpoSpec) and spec.bootstrap_truncated:
        last_N = in_parts(learner.critic.last_values, packed, size)
        packed = replace(packed, last_value_N=last_N * packed.truncated_N)
    return packed


def penalise_overlong(
    packed: PackedRollouts, spec: ObjectiveSpec, max_new_tokens: int
) -> PackedRollouts:
    """Take a linear penalty off rewards over the last `overlong_buffer` tokens (DAPO, eq. 13)."""
    if spec.overlong != "penalty":
        return packed
    length_N = packed.length_N - packed.prompt_length_N
    over_N = (length_N - (max_new_tokens - spec.overlong_buffer)).clamp_min(0)
    share_N = (over_N / spec.overlong_buffer).clamp_max(1.0)
    reward_N = packed.reward_N - spec.overlong_penalty * share_N
    return replace(packed, reward_N=reward_N.float(), overlong_N=share_N > 0)


def put_kl_in_reward(packed: PackedRollouts, run: RunSpec, knobs: Knobs) -> PackedRollouts:
    """Take the KL term off each token's reward when that is where it belongs."""
    if run.kl.placement != "reward" or not knobs.kl_coef or packed.ref_logp_NT is None:
        return packed
    logp_NT = packed.sampler_logp_NT if packed.old_logp_NT is None else packed.old_logp_NT
    penalty_NT = kl_reward(logp_NT, packed.ref_logp_NT, knobs.kl_coef, run.kl.estimator)
    penalty_NT = (penalty_NT * packed.action_NT).to(packed.token_reward_NT.dtype)
    return replace(
        packed,
        token_reward_NT=packed.token_reward_NT + penalty_NT,
        kl_reward_N=penalty_NT.sum(1),
    )
