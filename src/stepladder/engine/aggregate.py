"""How token losses become one loss: what each action token counts in its update.

Weights are fixed for a whole update before it is split, so any split into micro-batches gives the
same gradient. Axes: N rollouts, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stepladder.engine.batch import PackedRollouts


def loss_weights(packed: PackedRollouts, aggregation: str, max_new_tokens: int) -> Tensor:
    """Return loss_weight_NT of one update's rollouts; 0 where nothing trains, never NaN.

    `token_mean` divides by the update's action tokens, `sequence_mean` by the rollouts that have
    any and by each one's own, `fixed_length` by all kept rollouts times `max_new_tokens`.
    """
    mask_NT = packed.mask_NT
    # float32 loses whole tokens beyond 2^24 of them.
    tokens_N = mask_NT.sum(1, dtype=torch.float64)
    if aggregation == "token_mean":
        divisor_N = tokens_N.sum().expand_as(tokens_N)
    elif aggregation == "sequence_mean":
        divisor_N = tokens_N * (tokens_N > 0).sum()
    elif aggregation == "fixed_length":
        divisor_N = ((packed.weight_N > 0).sum() * float(max_new_tokens)).expand_as(tokens_N)
    else:
        raise ValueError(
            f"unknown aggregation {aggregation!r}: use token_mean, sequence_mean or fixed_length"
        )
    # A divisor of 0 stands only under rows without a token to train on: 0 / 1 there.
    divisor_N = torch.where(divisor_N > 0, divisor_N, 1.0)
    return (mask_NT / divisor_N[:, None]).to(mask_NT.dtype)
