"""One step's metrics, from its groups, batch and update sums. No clock and no file is read here."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from stepladder.core.control import ControlEvent, Knobs
from stepladder.core.metrics import Last, Max, Mean, Metrics, Sum
from stepladder.core.rollout import Rollout, RolloutGroup
from stepladder.engine.batch import RolloutBatch
from stepladder.engine.evaluate import format_rate
from stepladder.engine.loss import LossTerms
from stepladder.engine.optim import UpdateResult

GRAM = 4
"""Length of the token runs whose repetition is counted."""


@dataclass(slots=True)
class UpdateSums:
    """One update's sums over action tokens; parts add up whatever the split."""

    sums: dict[str, float] = field(default_factory=dict)
    """Name -> sum over action tokens; `tokens` is their number."""
    ratio_max: float = 0.0

    def add(self, terms: LossTerms) -> None:
        """Add one part."""
        names = list(terms.sums)
        values = torch.stack([*(terms.sums[n].double() for n in names), terms.ratio_max.double()])
        *sums, ratio_max = values.tolist()
        for name, value in zip(names, sums, strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.ratio_max = max(self.ratio_max, ratio_max)

    def mean(self, name: str) -> float:
        """Return a token mean; 0 when no token trains."""
        return self.sums[name] / max(self.sums["tokens"], 1.0)


@dataclass(slots=True)
class UpdateStats:
    """What the updates of one step add up to, and what its belts did."""

    learning_rate: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    """Name -> sum over action tokens of every update; `tokens` is their number."""
    ratio_max: float = 0.0
    num_passes: int = 0
    """Mini-batches seen; updates of the policy may be fewer (a critic's warm-up)."""
    updates: list[UpdateResult] = field(default_factory=list)
    critic_updates: list[UpdateResult] = field(default_factory=list)
    update_norm: float = 0.0
    weight_norm: float = 0.0
    kl_change: float | None = None
    """KL between the policies before and after; None: not measured."""
    lr_factor: float = 1.0
    """What belts multiply the learning rate by, from here on."""
    kl_coef_factor: float = 1.0
    events: list[ControlEvent] = field(default_factory=list)
    stop: str | None = None
    """Why a belt ends the run."""
    batch_is_stale: bool = False
    """Whether a belt put other weights in place, so that the rest of the batch is left out."""

    def add(self, sums: UpdateSums) -> None:
        """Add one update."""
        for name, value in sums.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.ratio_max = max(self.ratio_max, sums.ratio_max)
        self.num_passes += 1

    @property
    def num_skipped(self) -> int:
        """Updates that were not applied."""
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
    logps = [logp for rollout in rollouts for logp in rollout.completion.logprobs]
    metrics.add("logp_mean", Mean.of(logps))
    if len(logps) > 1:
        metrics.add("logp_std", Mean(statistics.pstdev(logps), 1.0))


def repetition(rollout: Rollout) -> float:
    """Return the share of a completion's token 4-grams that occurred before in it."""
    ids = rollout.completion.token_ids
    total = len(ids) - GRAM + 1
    if total < 1:
        return 0.0
    return 1.0 - len({ids[at : at + GRAM] for at in range(total)}) / total


def add_batch(metrics: Metrics, batch: RolloutBatch, version: int) -> None:
    """Add shaped rewards, advantages, values and returns over action tokens, and staleness."""
    packed = batch.packed
    kept_N = packed.weight_N > 0
    shaped_N = packed.reward_N + (packed.token_reward_NT * packed.action_NT).sum(1)
    metrics.add("reward_shaped_mean", Mean.of(shaped_N[kept_N].tolist()))
    if packed.kl_reward_N is not None:
        metrics.add("kl_penalty", Mean.of((-packed.kl_reward_N[kept_N]).tolist()))
    if packed.overlong_N is not None:
        metrics.add("overlong_share", Mean.of(packed.overlong_N.float().tolist()))
    mask_NT = packed.mask_NT > 0
    values_A = batch.advantage_NT[mask_NT].double()
    if values_A.numel():
        metrics.add("advantage_mean", Mean(float(values_A.mean()), 1.0))
        metrics.add("advantage_std", Mean(float(values_A.std(correction=0)), 1.0))
        metrics.add("advantage_max", Max(float(values_A.abs().max())))
    if packed.value_NT is not None and batch.return_NT is not None and values_A.numel():
        value_A, return_A = packed.value_NT[mask_NT].double(), batch.return_NT[mask_NT].double()
        for name, found_A in (("value", value_A), ("return", return_A)):
            metrics.add(f"{name}_mean", Mean(float(found_A.mean()), 1.0))
            metrics.add(f"{name}_std", Mean(float(found_A.std(correction=0)), 1.0))
        variance = float(return_A.var(correction=0))
        if variance > 0:  # with equal returns there is nothing to explain
            left = float((return_A - value_A).var(correction=0))
            metrics.add("explained_variance", Mean(1.0 - left / variance, 1.0))
    metrics.add("staleness", Mean.of((version - packed.version_N).tolist()))


def add_update(metrics: Metrics, stats: UpdateStats, knobs: Knobs) -> None:
    """Add losses, KL, entropy, clipping, gradients and the size of the step."""
    sums, tokens = stats.sums, stats.sums.get("tokens", 0.0)
    if tokens:
        metrics.add("loss", Mean(sums["loss"], float(stats.num_passes)))
        metrics.add("clip_fraction", Mean(sums["clip_low"] + sums["clip_high"], tokens))
        metrics.add("ratio_max", Max(stats.ratio_max))
        for name, source in TOKEN_MEANS.items():
            if source in sums:
                metrics.add(name, Mean(sums[source], tokens))
        if "kl_k3" in sums:
            metrics.add("kl_ref_std", Mean(spread_of(sums, "kl_k3", tokens), 1.0))
    if stats.kl_change is not None:
        metrics.add("kl_old_new", Mean(stats.kl_change, 1.0))
    add_gradients(metrics, stats)
    metrics.add("update_norm", Mean(stats.update_norm, 1.0))
    if stats.weight_norm:
        metrics.add("update_ratio", Mean(stats.update_norm / stats.weight_norm, 1.0))
    metrics.add("lr", Last(stats.learning_rate))
    metrics.add("lr_scale", Last(knobs.lr_scale))
    metrics.add("kl_coef", Last(knobs.kl_coef))
    metrics.add("entropy_coef", Last(knobs.entropy_coef))


def add_gradients(metrics: Metrics, stats: UpdateStats) -> None:
    """Add gradient norms, clipping and what became of the updates."""
    metrics.add("updates", Sum(float(len(stats.updates) - stats.num_skipped)))
    metrics.add("skipped_updates", Sum(float(stats.num_skipped)))
    for update in stats.updates:
        metrics.add("grad_norm", Mean(update.grad_norm, 1.0))
        metrics.add("grad_clipped", Mean(float(update.clipped), 1.0))
        if update.applied:
            metrics.add("clip_threshold", Last(update.threshold))
            metrics.add("grad_norm_average", Last(update.average))
    for update in stats.critic_updates:
        metrics.add("critic_grad_norm", Mean(update.grad_norm, 1.0))


def spread_of(sums: Mapping[str, float], name: str, tokens: float) -> float:
    """Return the standard deviation over tokens, from a sum and the sum of squares."""
    mean = sums[name] / tokens
    return max(0.0, sums[f"{name}_squared"] / tokens - mean * mean) ** 0.5


TOKEN_MEANS: Mapping[str, str] = {
    "policy_loss": "policy_loss",
    "entropy": "entropy",
    "clip_fraction_low": "clip_low",
    "clip_fraction_high": "clip_high",
    "dual_clip_fraction": "dual_clip",
    "ratio_mean": "ratio",
    "ratio_outside_share": "ratio_outside",
    "importance_weight_mean": "importance_weight",
    "importance_capped_share": "importance_capped",
    "logp_difference": "logp_difference",
    "kl_sampler": "sampler_k3",
    "kl_ref": "kl_k3",
    "kl_ref_k1": "kl_k1",
    "kl_base": "base_k3",
    "value_loss": "value_loss",
    "value_clip_fraction": "value_clipped",
}
"""Canonical name -> sum of the loss that it is the token mean of."""
