"""Metrics: the canonical names (unit, reduction, direction, layer, aliases) and how they reduce.

Values of one step are collected by `Metrics`; a mean of means cannot happen because each value
carries its own reducer, and a reducer that contradicts the table is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Layer(StrEnum):
    """The four layers of P14."""

    TRAINING = "training"
    SAMPLING = "sampling"
    EVAL = "eval"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """What a canonical metric is."""

    name: str
    """`{}` stands for a variable part, such as a reward term's name."""
    unit: str
    reduction: str
    """mean, max, sum or last: how several values of one step become one."""
    better: str
    """up, down, or none when neither direction is good in itself."""
    layer: Layer
    meaning: str
    aliases: tuple[str, ...] = ()
    """Names in other trainers; an importer matches them as suffixes."""


def _table(
    rows: Iterable[tuple[str, str, str, str, Layer, str, tuple[str, ...]]],
) -> dict[str, MetricInfo]:
    return {
        name: MetricInfo(
            name=name,
            unit=unit,
            reduction=red,
            better=better,
            layer=layer,
            meaning=text,
            aliases=al,
        )
        for name, unit, red, better, layer, text, al in rows
    }


_T, _S, _E, _Y = Layer.TRAINING, Layer.SAMPLING, Layer.EVAL, Layer.SYSTEM
# fmt: off
METRICS: Mapping[str, MetricInfo] = _table([
    ("reward_mean", "reward", "mean", "up", _T, "mean scalar reward of the step's rollouts", ("critic/score/mean", "reward")),
    ("reward_std", "reward", "mean", "none", _T, "standard deviation of the reward over rollouts", ("reward_std",)),
    ("reward_std_within", "reward", "mean", "none", _T, "mean over groups of the standard deviation within a group", ("group_reward_std",)),
    ("reward_shaped_mean", "reward", "mean", "none", _T, "mean reward after overlong penalty and KL in the reward", ("critic/rewards/mean",)),
    ("term_mean/{}", "reward", "mean", "up", _T, "mean of one raw reward term", ("rewards/{}/mean",)),
    ("term_std/{}", "reward", "mean", "none", _T, "standard deviation of one raw reward term", ("rewards/{}/std",)),
    ("missing_share", "share", "mean", "down", _T, "share of rollouts whose reward could not be computed", ()),
    ("zero_variance_share", "share", "mean", "down", _T, "share of groups whose rewards are all equal", ("frac_reward_zero_std",)),
    ("advantage_mean", "1", "mean", "none", _T, "mean advantage over action tokens", ()),
    ("advantage_std", "1", "mean", "none", _T, "standard deviation of the advantage over action tokens", ()),
    ("advantage_max", "1", "max", "none", _T, "largest magnitude of an advantage", ()),
    ("loss", "1", "mean", "none", _T, "total loss of the step", ("train/loss", "actor/pg_loss")),
    ("policy_loss", "1", "mean", "none", _T, "clipped objective without KL and entropy terms", ("actor/pg_loss",)),
    ("value_loss", "1", "mean", "none", _T, "loss of the critic, unweighted", ("critic/vf_loss", "critic_loss")),
    ("value_clip_fraction", "share", "mean", "none", _T, "share of action tokens whose value was clipped", ("critic/vf_clipfrac",)),
    ("value_mean", "reward", "mean", "none", _T, "mean value of action tokens before the update", ("critic/values/mean",)),
    ("value_std", "reward", "mean", "none", _T, "standard deviation over action tokens of the value", ()),
    ("return_mean", "reward", "mean", "none", _T, "mean target of the critic", ("critic/returns/mean",)),
    ("return_std", "reward", "mean", "none", _T, "standard deviation over action tokens of the critic's target", ()),
    ("explained_variance", "share", "mean", "up", _T, "share of the returns' variance that the value explains", ("critic/vf_explained_var",)),
    ("kl_ref", "nats/token", "mean", "none", _T, "k3 estimate of the KL to the reference, token mean", ("kl", "actor/kl_loss")),
    ("kl_ref_k1", "nats/token", "mean", "none", _T, "k1 estimate of the KL to the reference, token mean", ()),
    ("kl_ref_std", "nats/token", "mean", "none", _T, "standard deviation over tokens of the k3 estimate", ()),
    ("kl_base", "nats/token", "mean", "none", _T, "k3 estimate of the KL to the base policy, token mean", ()),
    ("kl_penalty", "reward", "mean", "none", _T, "mean over rollouts of the reward taken off for KL", ("critic/kl",)),
    ("kl_sampler", "nats/token", "mean", "down", _T, "k3 estimate of the KL between sampler and trainer, token mean", ("rollout_corr/k3_kl",)),
    ("kl_old_new", "nats/token", "mean", "none", _T, "k3 estimate of the KL between the policies before and after the step's updates, token mean", ("actor/ppo_kl",)),
    ("kl_coef", "1", "last", "none", _T, "coefficient of the KL term", ("actor/kl_coef",)),
    ("entropy", "nats/token", "mean", "none", _T, "exact entropy at the sampling temperature, token mean", ("actor/entropy",)),
    ("entropy_coef", "1", "last", "none", _T, "coefficient of the entropy term", ()),
    ("clip_fraction_low", "share", "mean", "none", _T, "share of action tokens clipped below", ("clip_ratio/low_mean",)),
    ("clip_fraction_high", "share", "mean", "none", _T, "share of action tokens clipped above", ("clip_ratio/high_mean",)),
    ("clip_fraction", "share", "mean", "none", _T, "share of action tokens clipped on either side", ("clip_ratio/region_mean", "actor/pg_clipfrac")),
    ("dual_clip_fraction", "share", "mean", "none", _T, "share of action tokens at the dual clip", ("actor/pg_clipfrac_lower",)),
    ("ratio_mean", "1", "mean", "none", _T, "mean probability ratio of action tokens", ("val/ratio",)),
    ("ratio_outside_share", "share", "mean", "none", _T, "share of action tokens whose ratio is outside the clip range, whatever the advantage", ("train/clip_fraction",)),
    ("importance_weight_mean", "1", "mean", "none", _T, "mean weight that corrects sampler against trainer, after truncation", ("sampling/importance_sampling_ratio/mean",)),
    ("importance_capped_share", "share", "mean", "down", _T, "share of action tokens whose correction was truncated", ()),
    ("ratio_max", "1", "max", "none", _T, "largest probability ratio", ()),
    ("grad_norm", "1", "mean", "none", _T, "gradient norm before clipping", ("actor/grad_norm", "optim/grad_norm")),
    ("grad_clipped", "share", "mean", "none", _T, "share of updates whose gradient was clipped", ()),
    ("grad_norm_average", "1", "last", "none", _T, "moving average of the gradient norm", ()),
    ("clip_threshold", "1", "last", "none", _T, "gradient norm that was clipped to", ()),
    ("critic_grad_norm", "1", "mean", "none", _T, "gradient norm of a separate critic before clipping", ("critic/grad_norm", "critic_grad_norm")),
    ("skipped_updates", "1", "sum", "down", _T, "updates left out: gradient not finite, an alarm, or the KL cap", ()),
    ("update_norm", "1", "mean", "none", _T, "norm of the parameter change of the step", ()),
    ("update_ratio", "share", "mean", "none", _T, "norm of the parameter change over the norm of the parameters", ()),
    ("lr", "1", "last", "none", _T, "learning rate", ("learning_rate", "actor/lr")),
    ("lr_scale", "1", "last", "none", _T, "what controllers multiply the learning rate by", ()),
    ("updates", "1", "sum", "none", _T, "optimiser updates of the step", ()),
    ("length_mean", "tokens", "mean", "none", _S, "mean completion length", ("completions/mean_length", "response_length/mean")),
    ("length_max", "tokens", "max", "none", _S, "longest completion", ("completions/max_length", "response_length/max")),
    ("length_std", "tokens", "mean", "none", _S, "standard deviation of completion length", ()),
    ("truncated_share", "share", "mean", "down", _S, "share of completions cut at the token limit", ("completions/clipped_ratio", "response_length/clip_ratio")),
    ("repetition", "share", "mean", "down", _S, "share of repeated 4-grams of tokens within a completion", ("rollout/repetition_frac",)),
    ("format_rate", "share", "mean", "up", _S, "share of completions with a well-formed structure", ()),
    ("distinct_share", "share", "mean", "none", _S, "share of distinct completions within a group", ()),
    ("logp_mean", "nats/token", "mean", "none", _S, "mean log-prob of sampled tokens", ()),
    ("logp_std", "nats/token", "mean", "none", _S, "standard deviation over tokens of the sampled log-prob", ()),
    ("overlong_share", "share", "mean", "down", _S, "share of completions masked or penalised for their length", ()),
    ("logp_difference", "nats/token", "mean", "down", _S, "mean absolute difference of sampler and trainer log-probs", ("sampling/sampling_logp_difference/mean",)),
    ("staleness", "versions", "mean", "down", _S, "policy versions between sampling and update", ()),
    ("eval/pass@1", "share", "mean", "up", _E, "share of right samples over eval prompts", ("eval_reward",)),
    ("eval/reward_mean", "reward", "mean", "up", _E, "mean scalar reward over eval prompts", ()),
    ("eval/format_rate", "share", "mean", "up", _E, "share of well-formed eval completions", ()),
    ("eval/length_mean", "tokens", "mean", "none", _E, "mean length of eval completions", ()),
    ("eval/truncated_share", "share", "mean", "down", _E, "share of eval completions cut at the limit", ()),
    ("eval/pass@{}", "share", "mean", "up", _E, "share of eval prompts solved within k samples", ()),
    ("num_samples", "rollouts", "last", "none", _Y, "training rollouts drawn so far", ()),
    ("num_tokens", "tokens", "last", "none", _Y, "prompt and completion tokens trained on so far", ("num_tokens",)),
    ("time_step_s", "s", "sum", "down", _Y, "seconds of the step", ("step_time", "timing_s/step")),
    ("time_rollout_s", "s", "sum", "down", _Y, "seconds spent sampling", ("timing_s/gen",)),
    ("time_reward_s", "s", "sum", "down", _Y, "seconds spent scoring", ()),
    ("time_train_s", "s", "sum", "down", _Y, "seconds spent on log-probs, loss and update", ("timing_s/update_actor",)),
    ("time_eval_s", "s", "sum", "down", _Y, "seconds spent evaluating", ("timing_s/testing",)),
    ("rollout_share", "share", "last", "none", _Y, "share of the step spent sampling", ()),
    ("memory_bytes", "bytes", "max", "down", _Y, "peak resident memory of the process", ()),
])
# fmt: on


def describe(name: str) -> MetricInfo | None:
    """Return the table's entry for a canonical name, variable parts matched; None when unknown."""
    if name in METRICS:
        return METRICS[name]
    for prefix in ("term_mean/", "term_std/", "eval/pass@"):
        if name.startswith(prefix):
            return METRICS[prefix + "{}"]
    return None


@dataclass(frozen=True, slots=True)
class Mean:
    """A weighted mean that stays a mean when several are joined."""

    total: float
    weight: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        """Return the mean of plain values, each of weight one."""
        kept = [float(v) for v in values]
        return cls(math.fsum(kept), float(len(kept)))

    def join(self, other: Mean) -> Mean:
        """Return the mean over both."""
        return Mean(self.total + other.total, self.weight + other.weight)

    def value(self) -> float | None:
        """Return the mean; None when nothing was counted."""
        return self.total / self.weight if self.weight else None


@dataclass(frozen=True, slots=True)
class Max:
    """The largest of the values joined."""

    largest: float

    def join(self, other: Max) -> Max:
        """Return the larger."""
        return self if self.largest >= other.largest else other

    def value(self) -> float | None:
        """Return it."""
        return self.largest


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of the values joined."""

    total: float

    def join(self, other: Sum) -> Sum:
        """Return the sum of both."""
        return Sum(self.total + other.total)

    def value(self) -> float | None:
        """Return it."""
        return self.total


@dataclass(frozen=True, slots=True)
class Last:
    """The latest of the values joined."""

    latest: float

    def join(self, other: Last) -> Last:
        """Return the later."""
        return other

    def value(self) -> float | None:
        """Return it."""
        return self.latest


Reduced = Mean | Max | Sum | Last
_REDUCERS = {"mean": Mean, "max": Max, "sum": Sum, "last": Last}


class Metrics:
    """Collects one step's values, checked against the table."""

    def __init__(self) -> None:
        self._values: dict[str, Reduced] = {}

    def add(self, name: str, value: Reduced) -> None:
        """Add a value, joined to an earlier one of the same name.

        Raises
            KeyError: when the name is not canonical.
            TypeError: when the reducer contradicts the table.
        """
        info = describe(name)
        if info is None:
            raise KeyError(f"{name!r} is not a canonical metric")
        if type(value) is not _REDUCERS[info.reduction]:
            raise TypeError(f"{name} reduces by {info.reduction}, not {type(value).__name__}")
        earlier = self._values.get(name)
        self._values[name] = value if earlier is None else earlier.join(value)  # type: ignore[arg-type]

    def values(self) -> dict[str, float]:
        """Return name -> value for everything that has one, sorted by name."""
        pairs = ((name, value.value()) for name, value in sorted(self._values.items()))
        return {name: value for name, value in pairs if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """What one step measured. Wall-clock values are apart, so that the rest is reproducible."""

    step: int
    """1-based; 0 is the evaluation of the base policy."""
    values: Mapping[str, float]
    """Canonical name -> finite value of the training, sampling and eval layers."""
    system: Mapping[str, float]
    """Canonical name -> value of the system layer (times, memory); never reproducible."""
    num_samples: int
    """Training rollouts drawn so far."""
    num_tokens: int
    """Tokens trained on so far."""
    non_finite: tuple[str, ...] = ()
    """Names whose value was NaN or infinite and is therefore not in `values`."""


def split_finite(values: Mapping[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the finite values and the names of those that are not."""
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    return finite, tuple(sorted(set(values) - set(finite)))
