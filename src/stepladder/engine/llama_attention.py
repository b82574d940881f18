"""Key caches and attention of the compact Llama: prompts once, completions on top of them.

Pure functions of tensors and two caches; the weights live in `engine/llama.py`, its only caller.

Axes: N completions, P prompts, G completions a prompt, B decode rows, L prompt tokens, C new
tokens, S suffix slots, H query heads, K key heads, R = H/K, E head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from stepladder.engine.llama_shape import LlamaShape


@dataclass(frozen=True, slots=True)
class PromptCache:
    """Keys and values of P prompts; rows that decode from it are prompt-major, G a prompt."""

    keys: tuple[Tensor, ...]
    """One a layer, [P, K, L, E], rotated."""
    values: tuple[Tensor, ...]
    lengths_P: Tensor
    bias_PL: Tensor | None
    """-inf on padding; None: all prompts have the full length."""

    def select(self, prompts: Tensor) -> PromptCache:
        """Return the cache of these prompts; repeating one gives it to several rows."""
        return PromptCache(
            tuple(key.index_select(0, prompts) for key in self.keys),
            tuple(value.index_select(0, prompts) for value in self.values),
            self.lengths_P.index_select(0, prompts),
            None if self.bias_PL is None else self.bias_PL.index_select(0, prompts),
        )

    def joined(self, num_slots: int) -> tuple[PromptCache, SuffixCache]:
        """Move the keys in front of `num_slots` free slots, for one row a prompt.

        One product over all keys costs a short prompt less than two. What is left of this cache
        holds no keys, but still the lengths and the bias.
        """
        width = self.keys[0].shape[2]
        room = (0, 0, 0, num_slots)
        bare = PromptCache(
            tuple(key[:, :, :0] for key in self.keys),
            tuple(value[:, :, :0] for value in self.values),
            self.lengths_P,
            self.bias_PL,
        )
        keys = [functional.pad(key, room) for key in self.keys]
        return bare, SuffixCache(keys, [functional.pad(v, room) for v in self.values], width, width)


@dataclass(slots=True)
class SuffixCache:
    """Preallocated keys and values of what B rows decoded so far; `decode` advances `length`."""

    keys: list[Tensor]
    """One a layer, [B, K, S, E], rotated; filled up to `length`."""
    values: list[Tensor]
    length: int = 0
    num_joined: int = 0
    """Leading slots that hold the row's prompt, padding included."""

    def select(self, rows: Tensor) -> SuffixCache:
        """Return the cache of these rows, with the same room."""
        return SuffixCache(
            [self._kept(key, rows) for key in self.keys],
            [self._kept(value, rows) for value in self.values],
            self.length,
            self.num_joined,
        )

    def _kept(self, slots: Tensor, rows: Tensor) -> Tensor:
        kept = slots.new_empty((len(rows), *slots.shape[1:]))
        kept[:, :, : self.length] = slots[:, :, : self.length].index_select(0, rows)
        return kept


def rope_tables(shape: LlamaShape, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cos and signed sin [length, E]; angles in float32 as transformers computes them."""
    even = torch.arange(0, shape.head_size, 2, dtype=torch.float32)
    frequency = 1.0 / shape.rope_theta ** (even / shape.head_size)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    pair = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    return pair[0].to(like), pair[1].to(like)


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last axis; on tiny tensors this is faster than F.rms_norm (performance.md)."""
    wide = hidden.float() if hidden.dtype in (torch.bfloat16, torch.float16) else hidden
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(hidden.dtype) * weight


def prompt_cache(keys: list[Tensor], values: list[Tensor], lengths_P: Tensor) -> PromptCache:
    """Wrap the layers' keys and values; padding is masked by length."""
    padding_PL = torch.arange(keys[0].shape[2], device=lengths_P.device) >= lengths_P[:, None]
    bias_PL = None
    if bool(padding_PL.any()):
        bias_PL = keys[0].new_zeros(padding_PL.shape).masked_fill(padding_PL, float("-inf"))
    return PromptCache(tuple(keys), tuple(values), lengths_P, bias_PL)


def suffix_bias(
    cache: PromptCache, num_new: int, num_keys: int, repeats: int, like: Tensor
) -> Tensor | None:
    """Return the score bias [P, 1, 1, R C, L + S]; None when every key is visible.

    One new token: on the prompt's keys only, or on all `num_keys` when the prompt is joined.
    """
    num_prompts, num_prompt_keys = len(cache.lengths_P), cache.keys[0].shape[2]
    if num_new == 1:
        if cache.bias_PL is None:
            return None
        bias = cache.bias_PL[:, None, None, None, :]
        return bias if num_prompt_keys else functional.pad(bias, (0, num_keys - bias.shape[-1]))
    causal = torch.full((num_new, num_new), float("-inf"), dtype=like.dtype, device=like.device)
    causal = causal.triu(1).repeat(repeats, 1)
    bias = like.new_zeros((num_prompts, repeats * num_new, num_prompt_keys + num_new))
    bias[:, :, num_prompt_keys:] = causal
    if cache.bias_PL is not None:
        bias[:, :, :num_prompt_keys] = cache.bias_PL[:, None]
    return bias[:, None, None]


def attend(
    query_NCHE: Tensor,
    prompt: tuple[Tensor, Tensor],
    suffix: tuple[Tensor, Tensor],
    bias: Tensor | None,
) -> Tensor:
    """Mix prompt values [P, K, L, E] and suffix values [N, K, S, E] by one softmax; [N, C, H, E].

    The prompt part is one matrix product per prompt and key head for all of its G completions.
    """
    (prompt_key, prompt_value), (key, value) = prompt, suffix
    num_prompts, num_key_heads, num_prompt_keys, size = prompt_key.shape
    num_rows, num_new = query_NCHE.shape[:2]
    group_size = num_rows // num_prompts
    # [N, C, K, R, E] -> [N, K, R C, E]: the queries that share a key head are rows of one matrix.
    query = (query_NCHE * size**-0.5).unflatten(2, (num_key_heads, -1)).permute(0, 2, 3, 1, 4)
    query = query.reshape(num_rows, num_key_heads, -1, size)
    if num_prompt_keys == 0:
        scores = query @ key.transpose(2, 3)
        mixed = torch.softmax(scores if bias is None else scores + bias[:, 0], -1) @ value
        return mixed.unflatten(2, (-1, num_new)).permute(0, 3, 1, 2, 4).flatten(2, 3)
    grouped = query.unflatten(0, (num_prompts, group_size)).transpose(1, 2)
    on_prompt = grouped.flatten(2, 3) @ prompt_key.transpose(2, 3)
    on_prompt = on_prompt.unflatten(2, (group_size, -1)).transpose(1, 2)
    on_suffix = (query @ key.transpose(2, 3)).unflatten(0, (num_prompts, group_size))
    if bias is not None and bias.shape[-1] == num_prompt_keys:
        on_prompt, bias = on_prompt + bias, None
    scores = torch.cat((on_prompt, on_suffix), -1)
    weights = torch.softmax(scores if bias is None else scores + bias, -1)
    from_prompt = weights[..., :num_prompt_keys].transpose(1, 2).flatten(2, 3) @ prompt_value
    from_prompt = from_prompt.unflatten(2, (group_size, -1)).transpose(1, 2).flatten(0, 1)
    mixed = from_prompt + weights[..., num_prompt_keys:].flatten(0, 1) @ value
    return mixed.unflatten(2, (-1, num_new)).permute(0, 3, 1, 2, 4).flatten(2, 3)
