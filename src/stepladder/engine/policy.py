"""The policy: a causal LM asked about action tokens. The only place that shifts.

Entry t of a result speaks about token t given tokens < t, so the logits of token t stand at place
t - 1; backbones are asked for logits at places and know nothing of the shift.
Axes: N rollouts, U distinct rollouts, T tokens, A action tokens, P prompts,
C completion places, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stepladder.engine.batch import PackedRollouts, TokenLogprobs
from stepladder.engine.llama import CompactLlama
from stepladder.engine.sampler import SampledTokens, sample_tokens
from stepladder.engine.token_logprob import token_logprob

VALUE_HEAD = "value_head."
"""Prefix of a value head's weights among the policy's."""


class Backbone(Protocol):
    """A causal LM: logits at chosen places, and sampling."""

    @property
    def model(self) -> nn.Module:
        """Return the module that holds the weights."""
        ...

    def logits_at(self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return logits_AV after the token at `place_A` of rollout `row_A`."""
        ...

    def logits_and_hidden_at(
        self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits_AV and the final-normed hidden states [A, D] at the same places."""
        ...

    def hidden_at(self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return the final-normed hidden states [A, D]."""
        ...

    def sample(
        self,
        prompt_ids: Sequence[Sequence[int]],
        counts: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        eos_ids: Collection[int],
        generator: torch.Generator,
    ) -> list[SampledTokens]:
        """Draw `counts[i]` completions of prompt i, in prompt order."""
        ...

    def save_folder(self, folder: Path) -> None:
        """Write config and weights as a Hugging Face folder."""
        ...


class ValueHead(nn.Module):
    """A linear map from a hidden state to a value, 0 at birth; float32 unless the model is float64.

    Values begin at 0, so that the first advantages are those of no critic at all.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        like = backbone.model.get_parameter(next(n for n, _ in backbone.model.named_parameters()))
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        size = hidden_size(backbone)
        self.weight = nn.Parameter(torch.zeros(1, size, dtype=dtype, device=like.device))
        self.bias = nn.Parameter(torch.zeros(1, dtype=dtype, device=like.device))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return values [...] of hidden states [..., D]."""
        return nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)[..., 0]


def hidden_size(backbone: Backbone) -> int:
    """Return D of a backbone's hidden states."""
    model: Any = backbone.model
    if isinstance(model, CompactLlama):
        return model.shape.hidden_size
    return model.get_input_embeddings().weight.shape[1]


class CausalPolicy:
    """Implements the Policy seam over a backbone."""

    def __init__(
        self, backbone: Backbone, temperature: float, value_head: ValueHead | None = None
    ) -> None:
        self.backbone = backbone
        self.temperature = temperature
        self.value_head = value_head
        """With a head, `logprobs` returns values too, from the same pass."""
        self.device = next(backbone.model.parameters()).device

    def attach_value_head(self) -> None:
        """Put a value head, 0 at birth, on the policy."""
        self.value_head = ValueHead(self.backbone)

    def logprobs(self, packed: PackedRollouts) -> TokenLogprobs:
        """Return log-probs and exact entropy of action tokens; 0 elsewhere.

        Equal completions of one prompt are computed once: at low entropy most of a group is equal
        (30 % distinct at the ladder's end), and each copy's gradient adds up all the same.
        """
        first_U, copy_N = distinct_rows(packed)
        if len(first_U) == packed.num_rollouts:
            return self._logprobs(packed)
        found = self._logprobs(packed.rows(first_U))
        return TokenLogprobs(
            logp_NT=found.logp_NT.index_select(0, copy_N),
            entropy_NT=found.entropy_NT.index_select(0, copy_N),
            value_NT=None if found.value_NT is None else found.value_NT.index_select(0, copy_N),
        )

    def _logprobs(self, packed: PackedRollouts) -> TokenLogprobs:
        row_A, token_place_A = packed.action_NT.nonzero(as_tuple=True)
        value_NT = None
        if self.value_head is None:
            logits_AV = self.backbone.logits_at(packed, row_A, token_place_A - 1)
        else:
            logits_AV, hidden_AD = self.backbone.logits_and_hidden_at(
                packed, row_A, token_place_A - 1
            )
            value_NT = scatter(self.value_head(hidden_AD), packed, row_A, token_place_A)
        token_A = packed.tokens_NT[row_A, token_place_A]
        logp_A, entropy_A = token_logprob(logits_AV, token_A, self.temperature)
        return TokenLogprobs(
            logp_NT=scatter(logp_A, packed, row_A, token_place_A),
            entropy_NT=scatter(entropy_A, packed, row_A, token_place_A),
            value_NT=value_NT,
        )

    @torch.no_grad()
    def logp(self, packed: PackedRollouts) -> Tensor:
        """Return logp_NT without a gradient."""
        return self.logprobs(packed).logp_NT

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return the weights that train, by name."""
        named = {n: p for n, p in self.backbone.model.named_parameters() if p.requires_grad}
        if self.value_head is not None:
            named |= {f"{VALUE_HEAD}{n}": p for n, p in self.value_head.named_parameters()}
        return named

    @property
    def num_parameters(self) -> int:
        """Return the number of weights, tied ones counted once."""
        return sum(weight.numel() for weight in self.backbone.model.parameters())

    def save_folder(self, folder: Path) -> None:
        """Write config and weights as a Hugging Face folder."""
        self.backbone.save_folder(folder)


def scatter(value_A: Tensor, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
    """Return [N, T] with the values at their places and 0 elsewhere."""
    flat_A = row_A * packed.tokens_NT.shape[1] + place_A
    blank = value_A.new_zeros(packed.tokens_NT.numel())
    return blank.index_copy(0, flat_A, value_A).view(packed.tokens_NT.shape)


def distinct_rows(packed: PackedRollouts) -> tuple[Tensor, Tensor]:
    """Return the first row of each distinct rollout [U], and for each rollout [N] which it equals.

    Distinct by group, length, tokens and action mask; groups stay contiguous and in order.
    """
    key_NK = torch.cat(
        (
            packed.group_N[:, None].long(),
            packed.length_N[:, None].long(),
            packed.tokens_NT,
            packed.action_NT.long(),
        ),
        1,
    )
    distinct_UK, copy_N = key_NK.unique(dim=0, return_inverse=True)
    row_N = torch.arange(packed.num_rollouts, device=key_NK.device)
    first_U = row_N.new_full((len(distinct_UK),), packed.num_rollouts)
    return first_U.scatter_reduce(0, copy_N, row_N, "amin"), copy_N


class CompactBackbone:
    """Our own Llama: a group's prompt is computed once and shared by its completions; exact."""

    def __init__(self, model: CompactLlama) -> None:
        self.model = model

    def logits_at(self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return logits_AV after the token at `place_A` of rollout `row_A`."""
        return self.model.logits(self.hidden_at(packed, row_A, place_A))

    def logits_and_hidden_at(
        self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits_AV and the final-normed hidden states [A, D] at the same places."""
        hidden_AD = self.hidden_at(packed, row_A, place_A)
        return self.model.logits(hidden_AD), hidden_AD

    def hidden_at(self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return the final-normed hidden states [A, D]."""
        start_N, group_N = packed.prompt_length_N, packed.group_N
        prompt_N, count_P = group_N.unique_consecutive(return_inverse=True, return_counts=True)[1:]
        first_P = count_P.cumsum(0) - count_P
        start_P = start_N[first_P]
        # Up to the last place that is asked for; one place at the least.
        width = max(int((place_A - start_N[row_A]).max()) + 1, 1)
        place_NC = start_N[:, None] + torch.arange(width, device=start_N.device)
        place_NC = place_NC.clamp_max(packed.tokens_NT.shape[1] - 1)
        last_PD, hidden_NCD = self.model.forward_shared(
            packed.tokens_NT[first_P, : int(start_P.max())],
            start_P,
            packed.tokens_NT.gather(1, place_NC),
            prompt_N,
        )
        offset_A = place_A - start_N[row_A]
        answered_A = len(start_P) + row_A * width + offset_A
        source_A = torch.where(offset_A < 0, prompt_N[row_A], answered_A)
        hidden = torch.cat((last_PD, hidden_NCD.flatten(0, 1)))
        return hidden.index_select(0, source_A)

    def sample(
        self,
        prompt_ids: Sequence[Sequence[int]],
        counts: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        eos_ids: Collection[int],
        generator: torch.Generator,
    ) -> list[SampledTokens]:
        """Draw completions with a shared, preallocated cache."""
        return sample_tokens(
            self.model,
            prompt_ids,
            counts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            eos_ids=eos_ids,
            generator=generator,
        )

    def save_folder(self, folder: Path) -> None:
        """Write config.json and model.safetensors."""
        self.model.save_folder(folder)
