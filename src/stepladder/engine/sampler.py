"""Draw completions from a compact Llama on the machine that trains it.

Inverse-CDF sampling from one uniform number a row and step, all drawn up front: what a row gets
does not depend on when other rows finish and are dropped. Not the `Sampler` seam, which adds
prompts, text and policy versions; its local implementation and the evaluation call this.

Axes: B decode rows (slots), P prompts, L prompt tokens, N completions, T new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stepladder.engine.llama import CompactLlama
from stepladder.engine.llama_attention import PromptCache

COMPACT_BELOW = 0.8
"""Drop finished rows when fewer than this share live: 1.7-2.2x on short answers (performance.md)."""
SHARE_FROM_TOKENS = 64
"""From this prompt length on, rows of a prompt share its keys; below, a copy a row costs less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """One drawn completion; T = number of tokens."""

    prompt_index: int
    token_ids: tuple[int, ...]
    """[T], the end-of-sequence token included when it was drawn."""
    logprobs: tuple[float, ...]
    """[T], of the drawn tokens at the sampling temperature; greedy: at temperature 1."""
    stopped: bool
    """An end-of-sequence token was drawn; False: cut at the limit."""


@torch.inference_mode()
def sample_tokens(
    model: CompactLlama,
    prompt_ids: Sequence[Sequence[int]],
    counts: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float,
    eos_ids: Collection[int],
    generator: torch.Generator,
) -> list[SampledTokens]:
    """Draw `counts[i]` completions of prompt i, in prompt order; temperature 0 is greedy.

    `generator` lives on the CPU and advances by sum(counts) x max_new_tokens uniform numbers.
    """
    assert len(prompt_ids) == len(counts), f"{len(prompt_ids)} prompts, {len(counts)} counts"
    num_rows, device = sum(counts), model.embedding.device
    uniform_NT = torch.rand(num_rows, max_new_tokens, generator=generator)
    if not num_rows or not max_new_tokens:
        return []
    # One scratch row more, for the slots that only fill a group up.
    uniform_NT = torch.cat((uniform_NT, uniform_NT.new_zeros(1, max_new_tokens))).to(device)
    token_NT = torch.full(uniform_NT.shape, -1, device=device)
    logp_NT = torch.zeros(uniform_NT.shape, device=device)
    is_eos_V = torch.zeros(model.shape.vocab_size, dtype=torch.bool, device=device)
    is_eos_V[list(eos_ids)] = True
    prompt_N = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).to(device)
    logits_PV, prompts = model.prefill(*_padded(prompt_ids, device))
    row_B, visible = _lay_out(torch.arange(num_rows, device=device), prompt_N, prompts)
    shared = prompts.keys[0].shape[2] >= SHARE_FROM_TOKENS
    if shared:
        suffix = model.suffix_cache(len(row_B), max_new_tokens)
    else:
        visible, suffix = visible.joined(max_new_tokens)
    done_B = row_B == num_rows
    logits_BV = logits_PV[torch.cat((prompt_N, prompt_N[:1]))[row_B]]
    for step in range(max_new_tokens):
        token_B, logp_B = draw(logits_BV, uniform_NT[row_B, step], temperature)
        token_NT[row_B, step] = token_B
        logp_NT[row_B, step] = logp_B.float()
        done_B = done_B | is_eos_V[token_B]
        num_live = len(done_B) - int(done_B.sum())
        if not num_live or step + 1 == max_new_tokens:
            break
        if num_live < COMPACT_BELOW * len(done_B):
            slot_of_row = torch.zeros_like(token_NT[:, 0])
            slot_of_row[row_B] = torch.arange(len(row_B), device=device)
            row_B, fresh = _lay_out(row_B[~done_B], prompt_N, prompts)
            kept_B = slot_of_row[row_B]
            visible = fresh if shared else visible.select(kept_B)
            suffix, token_B, done_B = suffix.select(kept_B), token_B[kept_B], row_B == num_rows
        logits_BV = model.decode(token_B, suffix, visible)
    return collect(token_NT[:num_rows], logp_NT[:num_rows], is_eos_V, prompt_N)


def draw(logits_BV: Tensor, uniform_B: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return drawn tokens and their log-probs, [B] each; temperature 0 takes the best token."""
    wide_BV = logits_BV if logits_BV.dtype == torch.float64 else logits_BV.float()
    logp_BV = torch.log_softmax(wide_BV / temperature if temperature else wide_BV, -1)
    if temperature == 0:
        token_B = logp_BV.argmax(-1)
    else:
        cumulative_BV = logp_BV.exp().cumsum(-1)
        # The sum may miss 1 by rounding; `right` never lands on a token of probability 0.
        threshold_B1 = uniform_B[:, None].to(wide_BV.dtype) * cumulative_BV[:, -1:]
        token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0]
        token_B = token_B.clamp_max(logits_BV.shape[-1] - 1)
    return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]


def _padded(prompt_ids: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return right-padded prompt tokens [P, L] and their lengths [P]."""
    lengths = [len(ids) for ids in prompt_ids]
    assert min(lengths) > 0, "a prompt has no token"
    tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, ids in zip(tokens, prompt_ids, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return tokens.to(device), torch.tensor(lengths, device=device)


def _lay_out(row_B: Tensor, prompt_N: Tensor, prompts: PromptCache) -> tuple[Tensor, PromptCache]:
    """Return the row of each decode slot and the prompt keys that the slots see, prompt-major.

    Short prompts: a copy of its prompt's keys for each row. Long prompts: rows stay grouped and
    the keys are read once a prompt; a group smaller than the largest is filled up with the
    scratch row, number N.
    """
    if prompts.keys[0].shape[2] < SHARE_FROM_TOKENS:
        return row_B, prompts.select(prompt_N[row_B])
    prompt_P, group_B, count_P = prompt_N[row_B].unique_consecutive(
        return_inverse=True, return_counts=True
    )
    first_P = count_P.cumsum(0) - count_P
    place_B = torch.arange(len(row_B), device=row_B.device) - first_P[group_B]
    row_PG = row_B.new_full((len(prompt_P), int(count_P.max())), len(prompt_N))
    row_PG[group_B, place_B] = row_B
    return row_PG.flatten(), prompts.select(prompt_P)


def collect(
    token_NT: Tensor, logp_NT: Tensor, is_eos_V: Tensor, prompt_N: Tensor
) -> list[SampledTokens]:
    """Cut each row after its first end-of-sequence token; what follows it is left-over work."""
    stop_NT = is_eos_V[token_NT.clamp_min(0)] & (token_NT >= 0)
    stopped_N = stop_NT.any(1)
    length_N = torch.where(stopped_N, stop_NT.int().argmax(1) + 1, token_NT.shape[1])
    columns = (prompt_N, token_NT, logp_NT, length_N, stopped_N)
    return [
        SampledTokens(
            prompt_index=prompt,
            token_ids=tuple(tokens[:length]),
            logprobs=tuple(logprobs[:length]),
            stopped=stopped,
        )
        for prompt, tokens, logprobs, length, stopped in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
