"""From a batch to changed weights: epochs, mini-batches, micro-batches, belts, updates.

Axes: N rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from stepladder.core.control import ControlEvent, Knobs
from stepladder.core.rng import seed_for
from stepladder.engine import kl
from stepladder.engine.batch import RolloutBatch, TokenLogprobs
from stepladder.engine.measure import UpdateStats, UpdateSums
from stepladder.engine.optim import UpdateResult
from stepladder.engine.parts import Learner
from stepladder.engine.prepare import in_parts, num_updates
from stepladder.spec.algorithm import PpoSpec


def update(
    batch: RolloutBatch, learner: Learner, knobs: Knobs, step: int, *, measure_change: bool
) -> UpdateStats:
    """Update policy and critic on a batch; return what the updates add up to.

    `measure_change` asks for the KL between the policies before and after, a forward pass or two.
    """
    run, policy = learner.run, learner.policy
    rate = learner.optimizer.learning_rate(step, knobs.lr_scale)
    stats = UpdateStats(learning_rate=rate)
    size = run.optim.minibatch_size or batch.packed.num_rollouts
    micro = run.optim.microbatch_size or size
    measure_change = measure_change or num_updates(run) > 1
    logp_NT = batch.packed.old_logp_NT
    if measure_change and logp_NT is None:
        logp_NT = in_parts(policy.logp, batch.packed, micro)
    spec = run.algorithm
    train_policy = not (isinstance(spec, PpoSpec) and step <= spec.critic_warmup_steps)
    weights = list(policy.named_parameters().values())
    before = [weight.detach().clone() for weight in weights]
    for epoch in range(spec.updates_per_batch):
        seed = seed_for("minibatch", run.seed, step, epoch)
        for rows in minibatches(batch.packed.num_rollouts, size, seed):
            if stats.batch_is_stale or stats.stop:
                break
            part = batch if rows is None else batch.rows(rows.to(policy.device))
            _one_update(part, learner, knobs, step, micro, stats, train_policy=train_policy)
    with torch.no_grad():
        changes = [weight - old for weight, old in zip(weights, before, strict=True)]
        stats.update_norm = float(nn.utils.get_total_norm(changes))
        stats.weight_norm = float(nn.utils.get_total_norm(before))
    if measure_change and logp_NT is not None:
        after_NT = in_parts(policy.logp, batch.packed, micro)
        mask_NT = batch.packed.mask_NT
        d_NT = kl.estimate(kl.log_ratio(logp_NT, after_NT), "k3")
        stats.kl_change = float((d_NT * mask_NT).sum() / mask_NT.sum().clamp_min(1))
    return stats


def minibatches(num_rollouts: int, size: int, seed: int) -> Iterator[Tensor | None]:
    """Yield the rows of each mini-batch, drawn anew by `seed`; None: all rows, in order.

    Rows are sorted inside a mini-batch, so that groups stay contiguous.
    """
    if size >= num_rollouts:
        yield None
        return
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_rollouts, generator=generator)
    for at in range(0, num_rollouts, size):
        yield order[at : at + size].sort().values


def _one_update(
    part: RolloutBatch,
    learner: Learner,
    knobs: Knobs,
    step: int,
    micro: int,
    stats: UpdateStats,
    *,
    train_policy: bool,
) -> None:
    learner.optimizer.zero_grad()
    if learner.critic_optimizer is not None:
        learner.critic_optimizer.zero_grad()
    sums = accumulate(part, learner, knobs, micro, train_policy=train_policy)
    stats.add(sums)
    if train_policy:
        stats.updates.append(apply(learner, sums, stats))
    if learner.critic_optimizer is not None:
        critic_rate = learner.critic_optimizer.learning_rate(step, knobs.lr_scale)
        stats.critic_updates.append(learner.critic_optimizer.update(critic_rate))


def apply(learner: Learner, sums: UpdateSums, stats: UpdateStats) -> UpdateResult:
    """Apply the accumulated gradient unless a belt forbids it; what belts did goes to `stats`."""
    if learner.guard is not None and "kl_k3" in sums.sums:
        decision = learner.guard.check(sums.mean("kl_k3"))
        stats.lr_factor *= decision.lr_factor
        stats.kl_coef_factor *= decision.kl_coef_factor
        stats.stop = stats.stop or decision.stop
        stats.batch_is_stale = decision.restored
        if decision.event is not None:
            stats.events.append(decision.event)
        if not decision.apply:
            grads = [w.grad for w in learner.optimizer.weights.values() if w.grad is not None]
            norm = float(nn.utils.get_total_norm(grads)) if grads else 0.0
            return UpdateResult(norm, clipped=False, applied=False, reason="kl_cap")
    result = learner.optimizer.update(stats.learning_rate * stats.lr_factor)
    if result.alarm:
        response = learner.run.optim.alarm_response
        if response == "lower_lr":
            stats.lr_factor *= 0.5
        details = {"grad_norm": result.grad_norm, "average": result.average, "response": response}
        stats.events.append(ControlEvent(kind="gradient_alarm", details=details))
    return result


def accumulate(
    batch: RolloutBatch,
    learner: Learner,
    knobs: Knobs,
    micro: int,
    *,
    train_policy: bool = True,
) -> UpdateSums:
    """Add one update's gradient, `micro` rollouts at a time; return its sums.

    A token's weight in the loss comes from the whole update, so the split does not matter.
    Rollouts whose loss has no gradient (advantage 0, no KL, entropy or value term) get a forward
    pass only: the gradient is the same and the metrics still cover every rollout.
    """
    batch = replace(batch, loss_weight_NT=learner.algorithm.loss_weights(batch.packed))
    live_N = batch.advantage_NT.ne(0).any(1)
    in_loss = knobs.kl_coef and learner.run.kl.placement == "loss"
    if in_loss or knobs.entropy_coef or batch.return_NT is not None:
        live_N = torch.ones_like(live_N)
    sums = UpdateSums()
    for rows, has_gradient in _parts(live_N, micro):
        part = batch if len(rows) == len(live_N) else batch.rows(rows)
        with torch.set_grad_enabled(has_gradient):
            new = look(part, learner, train_policy=train_policy)
            terms = learner.algorithm.loss(part, new, knobs)
        if has_gradient and terms.loss.requires_grad:
            terms.loss.backward()
        sums.add(terms)
    return sums


def look(part: RolloutBatch, learner: Learner, *, train_policy: bool) -> TokenLogprobs:
    """Return what policy and critic say of a part, with gradients for those that learn."""
    enabled = torch.is_grad_enabled() and train_policy
    with torch.set_grad_enabled(enabled):
        new = learner.policy.logprobs(part.packed)
    if learner.critic is not None and not learner.critic.shared:
        new = replace(new, value_NT=learner.critic.values(part.packed))
    return new


def _parts(live_N: Tensor, size: int) -> Iterator[tuple[Tensor, bool]]:
    for has_gradient in (True, False):
        rows = (live_N == has_gradient).nonzero()[:, 0]
        for at in range(0, len(rows), size):
            yield rows[at : at + size], has_gradient
