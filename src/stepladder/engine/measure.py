"""One step's metrics, from its groups, batch and update sums. No clock and no file is read here."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from stepladder.core.control import Knobs
from stepladder.core.metrics import Last, Max, Mean, Metrics, Sum
from stepladder.core.rollout import Rollout, RolloutGroup
from stepladder.engine.batch import RolloutBatch
from stepladder.engine.evaluate import format_rate
from stepladder.engine.loss import LossTerms
from stepladder.engine.optim import UpdateResult

GRAM = 4
"""Length of the token runs whose repetition is counted."""


@dataclass(slots=True)
class UpdateStats:
    """What the updates of one step add up to."""

    sums: dict[str, float] = field(default_factory=dict)
    """Name -> sum over action tokens of every update; `tokens` is their number."""
    ratio_max: float = 0.0
    updates: list[UpdateResult] = field(default_factory=list)
    update_norm: float = 0.0
    learning_rate: float = 0.0

    def add(self, terms: LossTerms) -> None:
        """Add one part of an update."""
        names = list(terms.sums)
        values = torch.stack([*(terms.sums[n].double() for n in names), terms.ratio_max.double()])
        *sums, ratio_max = values.tolist()
        for name, value in zip(names, sums, strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.ratio_max = max(self.ratio_max, ratio_max)

    @property
    def num_skipped(self) -> int:
        """Updates that were not applied because their gradient was not finite."""
        return sum(not update.applied for update in self.updates)


def step_values(
    groups: Sequence[RolloutGroup],
    batch: RolloutBatch,
    stats: UpdateStats,
    knobs: Knobs,
    version: int,
) -> dict[str, float]:
    """Return canonical name -> value of the training and sampling layers; may hold NaN."""
    metrics = Metrics()
    add_rewards(metrics, groups)
    add_lengths(metrics, groups)
    add_batch(metrics, batch, version)
    add_update(metrics, stats, knobs)
    return metrics.values()


def add_rewards(metrics: Metrics, groups: Sequence[RolloutGroup]) -> None:
    """Add rewards and their terms; rollouts without a reward are counted and left out."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    kept = [rollout for rollout in rollouts if rollout.failure is None]
    metrics.add("missing_share", Mean.of(r.failure is not None for r in rollouts))
    metrics.add("reward_mean", Mean.of(r.reward for r in kept))
    metrics.add("format_rate", format_rate(kept))
    add_std(metrics, "reward_std", [r.reward for r in kept])
    within = [[r.reward for r in group.rollouts if r.failure is None] for group in groups]
    metrics.add("reward_std_within", Mean.of(statistics.stdev(rs) for rs in within if len(rs) > 1))
    metrics.add("zero_variance_share", Mean.of(min(rs) == max(rs) for rs in within if rs))
    for name in sorted({name for rollout in kept for name in rollout.terms}):
        values = [r.terms[name] for r in kept if name in r.terms and name not in r.missing]
        metrics.add(f"term_mean/{name}", Mean.of(values))
        add_std(metrics, f"term_std/{name}", values)


def add_std(metrics: Metrics, name: str, values: Sequence[float]) -> None:
    """Add a standard deviation (ddof 1) when two values or more are there."""
    if len(values) > 1:
        metrics.add(name, Mean(statistics.stdev(values), 1.0))


def add_lengths(metrics: Metrics, groups: Sequence[RolloutGroup]) -> None:
    """Add the sampling layer."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = [len(r.completion.token_ids) for r in rollouts]
    metrics.add("length_mean", Mean.of(lengths))
    metrics.add("length_max", Max(float(max(lengths))))
    add_std(metrics, "length_std", [float(length) for length in lengths])
    metrics.add("truncated_share", Mean.of(r.completion.stop.truncated for r in rollouts))
    metrics.add("repetition", Mean.of(repetition(r) for r in rollouts))
    distinct = (
        len({r.completion.token_ids for r in group.rollouts}) / len(group.rollouts)
        for group in groups
    )
    metrics.add("distinct_share", Mean.of(distinct))
    for rollout in rollouts:
        logps = rollout.completion.logprobs
        metrics.add("logp_mean", Mean(sum(logps), float(len(logps))))


def repetition(rollout: Rollout) -> float:
    """Return the share of a completion's token 4-grams that occurred before in it."""
    ids = rollout.completion.token_ids
    total = len(ids) - GRAM + 1
    if total < 1:
        return 0.0
    return 1.0 - len({ids[at : at + GRAM] for at in range(total)}) / total


def add_batch(metrics: Metrics, batch: RolloutBatch, version: int) -> None:
    """Add advantages over action tokens and staleness."""
    values_A = batch.advantage_NT[batch.packed.mask_NT > 0].double()
    if values_A.numel():
        metrics.add("advantage_mean", Mean(float(values_A.mean()), 1.0))
        metrics.add("advantage_std", Mean(float(values_A.std(correction=0)), 1.0))
        metrics.add("advantage_max", Max(float(values_A.abs().max())))
    metrics.add("staleness", Mean.of((version - batch.packed.version_N).tolist()))


def add_update(metrics: Metrics, stats: UpdateStats, knobs: Knobs) -> None:
    """Add losses, KL, entropy, clipping, gradients and the size of the step."""
    sums, tokens = stats.sums, stats.sums.get("tokens", 0.0)
    if tokens:
        metrics.add("loss", Mean(sums["loss"], float(len(stats.updates))))
    for name, source in TOKEN_MEANS.items():
        if source in sums and tokens:
            metrics.add(name, Mean(sums[source], tokens))
    if tokens:
        metrics.add("clip_fraction", Mean(sums["clip_low"] + sums["clip_high"], tokens))
        metrics.add("ratio_max", Max(stats.ratio_max))
        if len(stats.updates) > 1:  # with one update the two policies are the same by definition
            metrics.add("kl_old_new", Mean(sums["old_new"], tokens))
    if "kl_k3" in sums and tokens:
        mean = sums["kl_k3"] / tokens
        variance = max(0.0, sums["kl_k3_squared"] / tokens - mean * mean)
        metrics.add("kl_ref_std", Mean(variance**0.5, 1.0))
    for update in stats.updates:
        metrics.add("grad_norm", Mean(update.grad_norm, 1.0))
        metrics.add("grad_clipped", Mean(float(update.clipped), 1.0))
        metrics.add("updates", Sum(float(update.applied)))
    metrics.add("update_norm", Mean(stats.update_norm, 1.0))
    metrics.add("lr", Last(stats.learning_rate))
    metrics.add("kl_coef", Last(knobs.kl_coef))
    metrics.add("entropy_coef", Last(knobs.entropy_coef))


TOKEN_MEANS: Mapping[str, str] = {
    "policy_loss": "policy_loss",
    "entropy": "entropy",
    "clip_fraction_low": "clip_low",
    "clip_fraction_high": "clip_high",
    "logp_difference": "logp_difference",
    "kl_ref": "kl_k3",
    "kl_ref_k1": "kl_k1",
}
"""Canonical name -> sum of the loss that it is the token mean of."""
