"""Log-prob of one token and the entropy of its whole distribution, from logits, in one pass.

One saved tensor and a closed-form gradient: at a vocabulary of 49,152 autograd would keep three
copies. Axes: A action tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _TokenLogprob(torch.autograd.Function):
    """logp_A = z[token] - logsumexp z and H_A = logsumexp z - sum softmax(z) z."""

    @staticmethod
    def forward(ctx: Any, logits_AV: Tensor, token_A1: Tensor) -> tuple[Tensor, Tensor]:
        logp_AV = torch.log_softmax(logits_AV, -1)
        entropy_A = -(logp_AV.exp() * logp_AV).sum(-1)
        ctx.save_for_backward(logp_AV, entropy_A, token_A1)
        return logp_AV.gather(1, token_A1)[:, 0], entropy_A

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # d logp / dz = 1[token] - p and d H / dz = -p (log p + H).
        logp_AV, entropy_A, token_A1 = ctx.saved_tensors
        grad_logp_A, grad_entropy_A = grads
        weight_AV = (logp_AV + entropy_A[:, None]).mul_(grad_entropy_A[:, None])
        grad_AV = weight_AV.add_(grad_logp_A[:, None]).mul_(logp_AV.exp()).neg_()
        return grad_AV.scatter_add_(1, token_A1, grad_logp_A[:, None]), None


def token_logprob(logits_AV: Tensor, token_A: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return log-prob of each token and exact entropy at the temperature; float32 at least."""
    wide_AV = logits_AV if logits_AV.dtype == torch.float64 else logits_AV.float()
    if temperature != 1.0:
        wide_AV = wide_AV / temperature
    logp_A, entropy_A = _TokenLogprob.apply(wide_AV, token_A[:, None])  # type: ignore[misc]
    return logp_A, entropy_A
