"""The objective: clipped or weighted policy term, KL, entropy and value terms, as weighted sums.

Each token counts `loss_weight_NT`, set for the whole update, so any split into micro-batches gives
the same gradient. Statistics are sums too: a mean of means cannot happen.
Axes: N rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stepladder.engine import kl
from stepladder.engine.batch import RolloutBatch, TokenLogprobs


@dataclass(frozen=True, slots=True)
class LossTerms:
    """One part's share of the loss, with sums over its action tokens for the metrics."""

    loss: Tensor
    """Scalar with a gradient."""
    sums: Mapping[str, Tensor]
    """Name -> detached sum over action tokens; `tokens` is their number."""
    ratio_max: Tensor
    """Largest probability ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """What the objective needs beside the batch."""

    objective: str = "clip"
    """`clip` or `cispo`."""
    ratio: str = "token"
    """`token`, or `sequence`: the geometric mean over a rollout's action tokens (GSPO)."""
    clip_low: float
    clip_high: float
    dual_clip: float | None = None
    """Bounds the loss of tokens with a negative advantage; CISPO's upper clip does so itself."""
    kl_coef: float = 0.0
    """Weight of the KL in the loss; 0 also when the KL sits in the reward."""
    kl_estimator: str = "k3"
    entropy_coef: float = 0.0
    importance_cap: float | None = None
    """Most that the old over the sampler's probability weighs a policy term; None: no weight."""
    importance_level: str = "token"
    """`token`, or `sequence`: the geometric mean over a rollout's action tokens."""
    value_coef: float = 0.0
    """Weight of the value loss; 0 without a critic."""
    value_clip: float | None = None
    train_policy: bool = True
    """False: the loss is the value loss alone; everything is still measured."""


def policy_loss(batch: RolloutBatch, new: TokenLogprobs, settings: LossSettings) -> LossTerms:
    """Return a part's loss and sums; rollouts must be whole, weights those of the whole update."""
    if batch.loss_weight_NT is None:
        raise ValueError("loss_weight_NT is missing: ask the algorithm's loss_weights first")
    live_NT = batch.packed.mask_NT > 0
    token_NT, sums = _policy_term(batch, new, settings, live_NT)
    ratio_max = torch.where(live_NT, sums["ratio"].detach(), 0.0).amax()
    entropy_NT = _kept(new.entropy_NT, live_NT)
    sums |= {"policy_loss": token_NT, "entropy": entropy_NT}
    if settings.entropy_coef:
        token_NT = token_NT - settings.entropy_coef * entropy_NT
    kl_NT, measured = _kl_term(batch, new, settings, live_NT)
    sums |= measured
    if kl_NT is not None:
        token_NT = token_NT + settings.kl_coef * kl_NT
    if not settings.train_policy:
        token_NT = torch.zeros_like(token_NT)
    value_NT, measured = _value_term(batch, new, settings, live_NT)
    sums |= measured
    if value_NT is not None:
        token_NT = token_NT + settings.value_coef * value_NT
    loss = (token_NT * batch.loss_weight_NT).sum()
    mask_NT = batch.packed.mask_NT
    reduced = {name: (sum_NT.detach() * mask_NT).sum() for name, sum_NT in sums.items()}
    return LossTerms(loss, reduced | {"loss": loss.detach()}, ratio_max)


def clipped_objective(
    ratio_NT: Tensor,
    advantage_NT: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return PPO's token loss, and whether the clip acts below, above, and at the dual clip.

    Sign-relevant: clipped low only where the advantage is negative, high only where positive.
    """
    clipped_NT = ratio_NT.clamp(1 - clip_low, 1 + clip_high)
    loss_NT = -torch.minimum(ratio_NT * advantage_NT, clipped_NT * advantage_NT)
    low_NT = (ratio_NT < 1 - clip_low) & (advantage_NT < 0)
    high_NT = (ratio_NT > 1 + clip_high) & (advantage_NT > 0)
    dual_NT = torch.zeros_like(low_NT)
    if dual_clip is not None:
        dual_NT = (ratio_NT > dual_clip) & (advantage_NT < 0)
        loss_NT = torch.where(dual_NT, -dual_clip * advantage_NT, loss_NT)
    return loss_NT, low_NT, high_NT, dual_NT


def cispo_objective(
    ratio_NT: Tensor,
    logp_NT: Tensor,
    advantage_NT: Tensor,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return CISPO's token loss and whether its weight is clipped below and above.

    The weight has no gradient and is clipped whatever the advantage's sign.
    """
    weight_NT = ratio_NT.detach().clamp(1 - clip_low, 1 + clip_high)
    low_NT, high_NT = ratio_NT < 1 - clip_low, ratio_NT > 1 + clip_high
    return -weight_NT * advantage_NT * logp_NT, low_NT, high_NT


def _policy_term(
    batch: RolloutBatch, new: TokenLogprobs, settings: LossSettings, live_NT: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    packed, low, high = batch.packed, settings.clip_low, settings.clip_high
    logp_NT = _kept(new.logp_NT, live_NT)
    fixed_NT = logp_NT.detach()
    old_NT = fixed_NT if packed.old_logp_NT is None else _kept(packed.old_logp_NT, live_NT)
    sampler_NT = _kept(packed.sampler_logp_NT, live_NT)
    advantage_NT = _kept(batch.advantage_NT, live_NT)
    ratio_NT = _ratio(logp_NT - old_NT, settings.ratio, live_NT)
    if settings.objective == "cispo":
        token_NT, low_NT, high_NT = cispo_objective(ratio_NT, logp_NT, advantage_NT, low, high)
        dual_NT = torch.zeros_like(low_NT)
    elif settings.objective == "clip":
        token_NT, low_NT, high_NT, dual_NT = clipped_objective(
            ratio_NT, advantage_NT, low, high, settings.dual_clip
        )
    else:
        raise ValueError(f"unknown objective {settings.objective!r}: use clip or cispo")
    sums = {
        "clip_low": low_NT,
        "clip_high": high_NT,
        "dual_clip": dual_NT,
        "ratio": ratio_NT,
        "ratio_outside": (ratio_NT < 1 - low) | (ratio_NT > 1 + high),
        "old_new": kl.estimate(kl.log_ratio(old_NT, fixed_NT), "k3"),
        "logp_difference": (sampler_NT - old_NT).abs(),
        "sampler_k3": kl.estimate(kl.log_ratio(sampler_NT, old_NT), "k3"),
        "logp": fixed_NT,
        "logp_squared": fixed_NT.square(),
        "tokens": torch.ones_like(fixed_NT),
    }
    if settings.importance_cap is not None:
        raw_NT = _ratio(old_NT - sampler_NT, settings.importance_level, live_NT)
        weight_NT = raw_NT.clamp_max(settings.importance_cap).detach()
        token_NT = token_NT * weight_NT
        capped_NT = raw_NT > settings.importance_cap
        sums |= {"importance_weight": weight_NT, "importance_capped": capped_NT}
    return token_NT, sums


def _kl_term(
    batch: RolloutBatch, new: TokenLogprobs, settings: LossSettings, live_NT: Tensor
) -> tuple[Tensor | None, dict[str, Tensor]]:
    packed, sums = batch.packed, dict[str, Tensor]()
    logp_NT = _kept(new.logp_NT, live_NT)
    if packed.base_logp_NT is not None:
        d_NT = kl.log_ratio(logp_NT.detach(), _kept(packed.base_logp_NT, live_NT))
        sums["base_k3"] = kl.estimate(d_NT, "k3")
    if packed.ref_logp_NT is None:
        return None, sums
    d_NT = kl.log_ratio(logp_NT, _kept(packed.ref_logp_NT, live_NT))
    k3_NT = kl.estimate(d_NT.detach(), "k3")
    sums |= {"kl_k1": d_NT, "kl_k3": k3_NT, "kl_k3_squared": k3_NT.square()}
    return (kl.kl_term(d_NT, settings.kl_estimator) if settings.kl_coef else None), sums


def _value_term(
    batch: RolloutBatch, new: TokenLogprobs, settings: LossSettings, live_NT: Tensor
) -> tuple[Tensor | None, dict[str, Tensor]]:
    if new.value_NT is None or batch.return_NT is None:
        if settings.value_coef:
            raise ValueError("value_coef is set, but values or returns are missing")
        return None, {}
    value_NT, return_NT = _kept(new.value_NT, live_NT), _kept(batch.return_NT, live_NT)
    loss_NT = 0.5 * (value_NT - return_NT).square()
    clipped_NT = torch.zeros_like(live_NT)
    if settings.value_clip is not None:
        if batch.packed.value_NT is None:
            raise ValueError("value_clip is set, but the values before the update are missing")
        old_NT, limit = _kept(batch.packed.value_NT, live_NT), settings.value_clip
        near_NT = old_NT + (value_NT - old_NT).clamp(-limit, limit)
        bounded_NT = 0.5 * (near_NT - return_NT).square()
        # Inside the range both are equal but for rounding, which must not count as clipping.
        clipped_NT = ((value_NT - old_NT).abs() > limit) & (bounded_NT > loss_NT)
        loss_NT = torch.where(clipped_NT, bounded_NT, loss_NT)
    sums = {"value_loss": loss_NT, "value_clipped": clipped_NT}
    return (loss_NT if settings.value_coef else None), sums


def _kept(value_NT: Tensor, live_NT: Tensor) -> Tensor:
    # Not a product: whatever stands at masked tokens, even NaN, must not reach sum or gradient.
    return torch.where(live_NT, value_NT, 0.0)


def _ratio(difference_NT: Tensor, level: str, live_NT: Tensor) -> Tensor:
    if level == "sequence":
        count_N = live_NT.sum(1, keepdim=True).clamp_min(1)
        difference_NT = (difference_NT.sum(1, keepdim=True) / count_N).expand_as(difference_NT)
    elif level != "token":
        raise ValueError(f"unknown level {level!r}: use token or sequence")
    return difference_NT.clamp(-kl.LOG_RATIO_LIMIT, kl.LOG_RATIO_LIMIT).exp()
