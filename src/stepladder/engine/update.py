"""From scored groups to changed weights: prepare a batch, then update the policy on it.

Axes: N rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stepladder.core.control import Knobs
from stepladder.core.rollout import RolloutGroup
from stepladder.engine.batch import PackedRollouts, RolloutBatch, pack
from stepladder.engine.kl import kl_reward
from stepladder.engine.measure import UpdateStats
from stepladder.engine.optim import Optimizer
from stepladder.engine.policy import CausalPolicy
from stepladder.engine.seams import Algorithm, FrozenPolicy
from stepladder.spec.run import RunSpec


def prepare(
    groups: Sequence[RolloutGroup],
    run: RunSpec,
    policy: CausalPolicy,
    reference: FrozenPolicy | None,
    algorithm: Algorithm,
    knobs: Knobs,
) -> RolloutBatch:
    """Return the batch of a step: padded, with old and reference log-probs, with advantages."""
    packed = pack(groups).to(policy.device)
    size = run.optim.microbatch_size or run.optim.minibatch_size or run.batch_size
    if num_updates(run) > 1:
        packed = replace(packed, old_logp_NT=logp_in_parts(policy, packed, size))
    if reference is not None:
        packed = replace(packed, ref_logp_NT=logp_in_parts(reference, packed, size))
    if run.kl.placement == "reward" and knobs.kl_coef and packed.ref_logp_NT is not None:
        logp_NT = packed.sampler_logp_NT if packed.old_logp_NT is None else packed.old_logp_NT
        penalty_NT = kl_reward(logp_NT, packed.ref_logp_NT, knobs.kl_coef, run.kl.estimator)
        token_reward_NT = packed.token_reward_NT + penalty_NT * packed.action_NT
        packed = replace(packed, token_reward_NT=token_reward_NT)
    found = algorithm.advantages(packed)
    return RolloutBatch(packed=packed, advantage_NT=found.advantage_NT, return_NT=found.return_NT)


def num_updates(run: RunSpec) -> int:
    """Return the optimiser updates of one batch of rollouts."""
    mini = run.optim.minibatch_size or run.batch_size
    return run.algorithm.updates_per_batch * (run.batch_size // mini)


def logp_in_parts(frozen: FrozenPolicy, packed: PackedRollouts, size: int) -> Tensor:
    """Return logp_NT without a gradient, `size` rollouts at a time."""
    starts = range(0, packed.num_rollouts, size)
    return torch.cat([frozen.logp(packed.rows(slice(at, at + size))) for at in starts])


def update(
    batch: RolloutBatch,
    run: RunSpec,
    policy: CausalPolicy,
    algorithm: Algorithm,
    optimizer: Optimizer,
    knobs: Knobs,
    learning_rate: float,
) -> UpdateStats:
    """Update the policy on a batch; return what the updates add up to."""
    stats = UpdateStats(learning_rate=learning_rate)
    weights = list(policy.named_parameters().values())
    before = [weight.detach().clone() for weight in weights]
    size = run.optim.minibatch_size or batch.packed.num_rollouts
    for _ in range(run.algorithm.updates_per_batch):
        for at in range(0, batch.packed.num_rollouts, size):
            optimizer.zero_grad()
            part = batch.rows(slice(at, at + size))
            accumulate(part, policy, algorithm, knobs, run.optim.microbatch_size or size, stats)
            stats.updates.append(optimizer.update(learning_rate))
    with torch.no_grad():
        changes = [weight - old for weight, old in zip(weights, before, strict=True)]
        stats.update_norm = float(torch.nn.utils.get_total_norm(changes))
    return stats


def accumulate(
    batch: RolloutBatch,
    policy: CausalPolicy,
    algorithm: Algorithm,
    knobs: Knobs,
    micro: int,
    stats: UpdateStats,
) -> None:
    """Add one update's gradient, `micro` rollouts at a time, over one common normaliser.

    Rollouts whose loss has no gradient (advantage 0, no KL and no entropy term) get a forward pass
    only: the gradient is the same and the metrics still cover every rollout.
    """
    num_tokens = max(float(batch.packed.mask_NT.sum()), 1.0)
    live_N = batch.advantage_NT.ne(0).any(1)
    if knobs.kl_coef or knobs.entropy_coef:
        live_N = torch.ones_like(live_N)
    for rows, has_gradient in _parts(live_N, micro):
        part = batch if len(rows) == len(live_N) else batch.rows(rows)
        with torch.set_grad_enabled(has_gradient):
            terms = algorithm.loss(part, policy.logprobs(part.packed), knobs, num_tokens)
        if has_gradient:
            terms.loss.backward()
        stats.add(terms)


def _parts(live_N: Tensor, size: int) -> Iterator[tuple[Tensor, bool]]:
    for has_gradient in (True, False):
        rows = (live_N == has_gradient).nonzero()[:, 0]
        for at in range(0, len(rows), size):
            yield rows[at : at + size], has_gradient
