"""Our own forward of Llama-type causal models, with prompts shared by a group's completions.

Reads and writes Hugging Face folders without importing transformers; equal to it by test. Not a
general model zoo: `llama_shape.supported` says why a config is refused. Called by the sampler, the policy and
the warm-up. Weights are fused (qkv, gate-up), masks go by length, never by pad id.

Axes: N completions, P prompts, G completions a prompt, B decode rows, T tokens, L prompt tokens,
C completion tokens, S suffix slots, D hidden, H query heads, K key heads, R = H/K, E head size,
V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from stepladder.engine.llama_attention import (
    PromptCache,
    SuffixCache,
    attend,
    prompt_cache,
    rms_norm,
    rope_tables,
    suffix_bias,
)
from stepladder.engine.llama_shape import LlamaShape

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class _Layer(nn.Module):
    """The weights of one block; the forward reads them as plain tensors."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        width, heads_width = shape.hidden_size, shape.num_heads * shape.head_size
        qkv_width = heads_width + 2 * shape.num_key_heads * shape.head_size
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.qkv = nn.Parameter(torch.empty(qkv_width, width))
        self.attention_out = nn.Parameter(torch.empty(width, heads_width))
        self.mlp_norm = nn.Parameter(torch.ones(width))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.intermediate_size, width))
        self.down = nn.Parameter(torch.empty(width, shape.intermediate_size))


class CompactLlama(nn.Module):
    """A Llama-type causal LM; entry t of a hidden sequence predicts token t + 1."""

    def __init__(self, config: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = dict(config)
        self.shape = LlamaShape.from_config(config)
        table = (self.shape.vocab_size, self.shape.hidden_size)
        self.embedding = nn.Parameter(torch.empty(table))
        self.layers = nn.ModuleList(_Layer(self.shape) for _ in range(self.shape.num_layers))
        self.final_norm = nn.Parameter(torch.ones(self.shape.hidden_size))
        self.head = None if self.shape.tied else nn.Parameter(torch.empty(table))
        self.to(dtype)
        self._tables: tuple[Tensor, Tensor] | None = None
        self.checkpointing = False
        """Compute each block again in the backward pass instead of keeping its activations."""

    @property
    def _blocks(self) -> Sequence[_Layer]:
        return cast("Sequence[_Layer]", self.layers)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> CompactLlama:
        """Build a model with normal weights of the config's initializer_range, drawn by `seed`."""
        model = cls(config, dtype)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 2:
                    weight.normal_(0.0, model.shape.init_std, generator=generator)
        return model

    @classmethod
    def from_folder(cls, path: str | Path, dtype: torch.dtype = torch.float32) -> CompactLlama:
        """Read config.json and the safetensors files of a Hugging Face folder.

        Raises
            ValueError: the model is outside what this forward implements.
        """
        folder = Path(path)
        model = cls(json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")), dtype)
        names = {WEIGHTS_FILE}
        if not (folder / WEIGHTS_FILE).exists() and (folder / INDEX_FILE).exists():
            index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
            names = set(index["weight_map"].values())
        state: dict[str, Tensor] = {}
        for name in sorted(names):
            state.update(load_file(folder / name))
        model.load_hf_state_dict(state)
        return model

    def save_folder(self, path: str | Path) -> None:
        """Write config.json and model.safetensors, as AutoModelForCausalLM reads them."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        dtype = str(self.embedding.dtype).removeprefix("torch.")
        config = {"architectures": ["LlamaForCausalLM"], **self.config, "dtype": dtype}
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
        save_file(self.hf_state_dict(), folder / WEIGHTS_FILE, metadata={"format": "pt"})

    def _hf_layer(self, number: int) -> dict[str, tuple[Tensor, ...]]:
        """Map each fused weight of a layer, by its HF names, to views of its parts."""
        layer, shape, at = self._blocks[number], self.shape, f"model.layers.{number}."
        key_width = shape.num_key_heads * shape.head_size
        sizes = [shape.num_heads * shape.head_size, key_width, key_width]
        return {
            f"{at}self_attn.q_proj {at}self_attn.k_proj {at}self_attn.v_proj": layer.qkv.split(
                sizes
            ),
            f"{at}self_attn.o_proj": (layer.attention_out,),
            f"{at}mlp.gate_proj {at}mlp.up_proj": layer.gate_up.chunk(2),
            f"{at}mlp.down_proj": (layer.down,),
            f"{at}input_layernorm": (layer.attention_norm,),
            f"{at}post_attention_layernorm": (layer.mlp_norm,),
        }

    def _hf_views(self) -> dict[str, Tensor]:
        """Return views of all weights under their Hugging Face names."""
        views: dict[str, Tensor] = {
            "model.embed_tokens.weight": self.embedding,
            "model.norm.weight": self.final_norm,
        }
        if self.head is not None:
            views["lm_head.weight"] = self.head
        for number in range(self.shape.num_layers):
            for names, parts in self._hf_layer(number).items():
                views.update({f"{n}.weight": p for n, p in zip(names.split(), parts, strict=True)})
        return views

    @torch.no_grad()
    def hf_state_dict(self) -> dict[str, Tensor]:
        """Return copies of the weights under their Hugging Face names."""
        return {name: view.detach().clone() for name, view in self._hf_views().items()}

    @torch.no_grad()
    def load_hf_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy in weights that carry Hugging Face names.

        Raises
            ValueError: a weight is missing, unknown or of another shape.
        """
        views = self._hf_views()
        extra = {name for name in state if not name.endswith("rotary_emb.inv_freq")} - set(views)
        if self.head is None:
            extra.discard("lm_head.weight")
        missing = set(views) - set(state)
        if missing or extra:
            raise ValueError(f"weights missing: {sorted(missing)}; not known: {sorted(extra)}")
        for name, view in views.items():
            if view.shape != state[name].shape:
                shapes = f"{tuple(state[name].shape)}, the config says {tuple(view.shape)}"
                raise ValueError(f"{name} has shape {shapes}")
            view.copy_(state[name])

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [..., V] of final-normed hidden states [..., D]."""
        return functional.linear(hidden, self.embedding if self.head is None else self.head)

    def forward_padded(self, tokens_NT: Tensor) -> Tensor:
        """Return hidden_NTD of right-padded sequences; causality keeps the padding out."""
        return self._plain(tokens_NT)[0]

    def forward_shared(
        self,
        prompt_tokens_PL: Tensor,
        prompt_lengths_P: Tensor,
        completion_tokens_NC: Tensor,
        group_N: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the last hidden state of each prompt [P, D] and hidden_NCD of the completions.

        `group_N` holds each completion's prompt, non-decreasing. A prompt is computed once; its
        completions attend to its keys, and gradients flow through both. Exact.
        """
        hidden_PLD, keys, values = self._plain(prompt_tokens_PL)
        cache = prompt_cache(keys, values, prompt_lengths_P)
        num_prompts, num_rows = len(prompt_tokens_PL), len(completion_tokens_NC)
        assert group_N.shape == (num_rows,), f"group_N {group_N.shape}, {num_rows} completions"
        group_size = num_rows // max(num_prompts, 1)
        regular = torch.arange(num_prompts, device=group_N.device).repeat_interleave(group_size)
        if not torch.equal(regular, group_N.to(regular.dtype)):
            cache = cache.select(group_N)
        rows = torch.arange(num_prompts, device=hidden_PLD.device)
        hidden_NCD = self._suffix(completion_tokens_NC, cache, None)
        return hidden_PLD[rows, prompt_lengths_P - 1], hidden_NCD

    def prefill(
        self, prompt_tokens_PL: Tensor, prompt_lengths_P: Tensor
    ) -> tuple[Tensor, PromptCache]:
        """Return the logits [P, V] after each right-padded prompt, and the prompts' cache."""
        hidden_PLD, keys, values = self._plain(prompt_tokens_PL)
        rows = torch.arange(len(prompt_tokens_PL), device=hidden_PLD.device)
        logits_PV = self.logits(hidden_PLD[rows, prompt_lengths_P - 1])
        return logits_PV, prompt_cache(keys, values, prompt_lengths_P)

    def suffix_cache(self, num_rows: int, num_slots: int) -> SuffixCache:
        """Return an empty cache with room for `num_slots` decoded tokens a row."""
        shape = (num_rows, self.shape.num_key_heads, num_slots, self.shape.head_size)
        layers = range(self.shape.num_layers)
        keys = [self.embedding.new_empty(shape) for _ in layers]
        return SuffixCache(keys, [self.embedding.new_empty(shape) for _ in layers])

    def decode(self, tokens_B: Tensor, suffix: SuffixCache, prompts: PromptCache) -> Tensor:
        """Feed one token a row, B = P x G prompt-major; return the next logits_BV.

        Each row's position is its prompt's length plus what `suffix` decoded; its length grows
        by one. Both caches come from `prefill` and `suffix_cache`, or from `PromptCache.joined`.
        """
        hidden_BCD = self._suffix(tokens_B[:, None], prompts, suffix)
        suffix.length += 1
        return self.logits(hidden_BCD[:, 0])

    def _plain(self, tokens_NT: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the causal hidden_NTD and, one a layer, keys and values [N, K, T, E]."""
        cos_TE, sin_TE = self._rope(tokens_NT.shape[1])
        keys, values = [], []
        hidden = functional.embedding(tokens_NT, self.embedding)
        tables = cos_TE[:, None], sin_TE[:, None]
        for layer in self._blocks:
            hidden, key, value = self._run(self._plain_block, hidden, layer, *tables)
            keys.append(key)
            values.append(value)
        return rms_norm(hidden, self.final_norm, self.shape.norm_eps), keys, values

    def _plain_block(
        self, hidden: Tensor, layer: _Layer, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the next hidden_NTD and the block's keys and values [N, K, T, E]."""
        query, key, value = self._project(hidden, layer, cos, sin)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        repeats = self.shape.num_heads // self.shape.num_key_heads
        wide = (key, value)
        if repeats > 1:
            wide = (key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1))
        mixed = functional.scaled_dot_product_attention(query, *wide, is_causal=True)
        return self._finish(hidden, mixed.transpose(1, 2), layer), key, value

    def _run(self, block: Callable[..., Any], *args: Any) -> Any:
        """Call a block; in a training pass with `checkpointing`, keep only its inputs."""
        if not (self.checkpointing and torch.is_grad_enabled()):
            return block(*args)
        # Here, since its first call imports torch._dynamo: more than a second.
        from torch.utils.checkpoint import checkpoint

        return checkpoint(block, *args, use_reentrant=False, preserve_rng_state=False)

    def _suffix(self, tokens_NC: Tensor, cache: PromptCache, suffix: SuffixCache | None) -> Tensor:
        """Return hidden_NCD of tokens that follow the cached prompts and `suffix`, if any."""
        num_prompts, (num_rows, num_new) = len(cache.lengths_P), tokens_NC.shape
        assert num_rows % num_prompts == 0, f"{num_rows} rows, {num_prompts} prompts"
        start = 0 if suffix is None else suffix.length
        steps = torch.arange(start, start + num_new, device=tokens_NC.device)
        joined = 0 if suffix is None else suffix.num_joined
        position_NC = cache.lengths_P[:, None] + (steps - joined)
        if num_rows != num_prompts:
            position_NC = position_NC.repeat_interleave(num_rows // num_prompts, 0)
        cos, sin = self._rope(cache.keys[0].shape[2] + start + num_new)
        cos, sin = cos[position_NC, None], sin[position_NC, None]
        repeats = self.shape.num_heads // self.shape.num_key_heads
        bias = suffix_bias(cache, num_new, start + num_new, repeats, cos)
        hidden = functional.embedding(tokens_NC, self.embedding)
        for number, layer in enumerate(self._blocks):
            prompt = (cache.keys[number], cache.values[number])
            if suffix is None:
                hidden = self._run(self._suffix_block, hidden, layer, cos, sin, prompt, bias)
                continue
            query, key, value = self._project(hidden, layer, cos, sin)
            suffix.keys[number][:, :, start : start + num_new] = key.transpose(1, 2)
            suffix.values[number][:, :, start : start + num_new] = value.transpose(1, 2)
            key = suffix.keys[number][:, :, : start + num_new]
            value = suffix.values[number][:, :, : start + num_new]
            hidden = self._finish(hidden, attend(query, prompt, (key, value), bias), layer)
        return rms_norm(hidden, self.final_norm, self.shape.norm_eps)

    def _suffix_block(
        self,
        hidden: Tensor,
        layer: _Layer,
        cos: Tensor,
        sin: Tensor,
        prompt: tuple[Tensor, Tensor],
        bias: Tensor | None,
    ) -> Tensor:
        """Return the next hidden_NCD of whole completions after their prompts."""
        query, key, value = self._project(hidden, layer, cos, sin)
        own = (key.transpose(1, 2), value.transpose(1, 2))
        return self._finish(hidden, attend(query, prompt, own, bias), layer)

    def _project(
        self, hidden: Tensor, layer: _Layer, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries [N, T, H, E], rotated keys and values [N, T, K, E]."""
        shape = self.shape
        normed = rms_norm(hidden, layer.attention_norm, shape.norm_eps)
        heads = functional.linear(normed, layer.qkv).unflatten(-1, (-1, shape.head_size))
        num_rotated = shape.num_heads + shape.num_key_heads
        rotated = heads[:, :, :num_rotated]
        # rotate_half(x) = roll(x, E / 2) with the first half negated; the sign is in `sin`.
        rotated = torch.addcmul(rotated * cos, rotated.roll(shape.head_size // 2, -1), sin)
        return (
            rotated[:, :, : shape.num_heads],
            rotated[:, :, shape.num_heads :],
            heads[:, :, num_rotated:],
        )

    def _finish(self, hidden: Tensor, mixed: Tensor, layer: _Layer) -> Tensor:
        """Add the attention output of `mixed` [N, T, H, E] and the MLP to hidden_NTD."""
        hidden = hidden + functional.linear(mixed.flatten(2), layer.attention_out)
        normed = rms_norm(hidden, layer.mlp_norm, self.shape.norm_eps)
        gate, up = functional.linear(normed, layer.gate_up).chunk(2, -1)
        return hidden + functional.linear(functional.silu(gate) * up, layer.down)

    def _rope(self, length: int) -> tuple[Tensor, Tensor]:
        """Return cos and signed sin tables, at least [length, E], in the model's dtype."""
        like, tables = self.embedding, self._tables
        if (
            tables is None
            or len(tables[0]) < length
            or tables[0].dtype != like.dtype
            or tables[0].device != like.device
        ):
            room = max(64, 1 << (length - 1).bit_length())
            # Outside inference mode, so that tables built while sampling can serve training.
            with torch.inference_mode(False), torch.no_grad():
                tables = self._tables = rope_tables(self.shape, room, like)
        return tables[0][:length], tables[1][:length]
