"""The clipped objective with KL and entropy terms, as sums over a fixed normaliser.

The normaliser is the number of action tokens of the whole update, so any split into micro-batches
gives the same gradient. Statistics are sums too: a mean of means cannot happen.
Axes: N rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    clip_low: float
    clip_high: float
    kl_coef: float = 0.0
    """Weight of the KL in the loss; 0 also when the KL sits in the reward."""
    kl_estimator: str = "k3"
    entropy_coef: float = 0.0
    num_tokens: float = field(default=1.0)
    """Action tokens of the whole update."""


def clipped_objective(
    logp_NT: Tensor,
    old_logp_NT: Tensor,
    advantage_NT: Tensor,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return per-token loss, ratio, and whether the clip acts below and above.

    Sign-relevant: clipped low only where the advantage is negative, high only where positive.
    """
    ratio_NT = kl.log_ratio(logp_NT, old_logp_NT).exp()
    clipped_NT = ratio_NT.clamp(1 - clip_low, 1 + clip_high)
    loss_NT = -torch.minimum(ratio_NT * advantage_NT, clipped_NT * advantage_NT)
    low_NT = (ratio_NT < 1 - clip_low) & (advantage_NT < 0)
    high_NT = (ratio_NT > 1 + clip_high) & (advantage_NT > 0)
    return loss_NT, ratio_NT, low_NT, high_NT


def policy_loss(batch: RolloutBatch, new: TokenLogprobs, settings: LossSettings) -> LossTerms:
    """Return the part's loss and sums: clipped objective + KL - entropy, over `num_tokens`."""
    packed, mask_NT = batch.packed, batch.packed.mask_NT
    fixed_NT = new.logp_NT.detach()
    old_NT = fixed_NT if packed.old_logp_NT is None else packed.old_logp_NT
    token_NT, ratio_NT, low_NT, high_NT = clipped_objective(
        new.logp_NT, old_NT, batch.advantage_NT, settings.clip_low, settings.clip_high
    )
    sums = {
        "policy_loss": token_NT,
        "entropy": new.entropy_NT,
        "clip_low": low_NT,
        "clip_high": high_NT,
        "old_new": kl.estimate(kl.log_ratio(old_NT, fixed_NT), "k3"),
        "logp_difference": (packed.sampler_logp_NT - old_NT).abs(),
        "tokens": torch.ones_like(mask_NT),
    }
    if settings.entropy_coef:
        token_NT = token_NT - settings.entropy_coef * new.entropy_NT
    if packed.ref_logp_NT is not None:
        d_NT = kl.log_ratio(new.logp_NT, packed.ref_logp_NT)
        k3_NT = kl.estimate(d_NT.detach(), "k3")
        sums |= {"kl_k1": d_NT, "kl_k3": k3_NT, "kl_k3_squared": k3_NT.square()}
        if settings.kl_coef:
            token_NT = token_NT + settings.kl_coef * kl.kl_term(d_NT, settings.kl_estimator)
    loss = (token_NT * mask_NT).sum() / settings.num_tokens
    reduced = {name: (value_NT.detach() * mask_NT).sum() for name, value_NT in sums.items()}
    reduced["loss"] = loss.detach()
    ratio_max = (ratio_NT.detach() * (mask_NT > 0)).amax()
    return LossTerms(loss, reduced, ratio_max)
