"""KL to the reference: estimators, the loss term with an unbiased gradient, and KL as a reward.

d = log pi - log pi_ref of the drawn token. k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""exp of more overflows float16 sums and says nothing new; verl, SkyRL and NeMo-RL use the same."""


def log_ratio(logp: Tensor, other: Tensor) -> Tensor:
    """Return log pi - log other, clamped."""
    return (logp - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def estimate(d: Tensor, estimator: str) -> Tensor:
    """Return the per-token estimate for a log-ratio."""
    if estimator == "k1":
        return d
    if estimator == "k2":
        return 0.5 * d.square()
    if estimator == "k3":
        return torch.expm1(-d) + d
    raise ValueError(f"unknown KL estimator {estimator!r}: use k1, k2 or k3")


def kl_term(d: Tensor, estimator: str) -> Tensor:
    """Return the estimate's value with the gradient of k2.

    On samples of the policy itself E[d * grad log pi] is the gradient of KL(pi, ref); the pathwise
    gradients of k1 (zero in expectation) and k3 (of the reverse KL) are not (numerics.md 5.4).
    """
    surrogate = estimate(d, "k2")
    return surrogate + (estimate(d, estimator) - surrogate).detach()


def kl_reward(logp_NT: Tensor, ref_logp_NT: Tensor, coef: float, estimator: str) -> Tensor:
    """Return -coef * estimate for each token, to be folded into rewards before advantages."""
    return -coef * estimate(log_ratio(logp_NT, ref_logp_NT), estimator)
