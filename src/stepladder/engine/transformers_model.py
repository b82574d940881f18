"""Any Hugging Face causal LM as a backbone: plain right-padded training, cached sampling.

For architectures that `engine/llama.py` does not implement; imports transformers when built.
Axes: N rollouts, T tokens, A action tokens, B decode rows, P prompts, K kept places, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepladder.core.errors import SpecError
from stepladder.engine import lora
from stepladder.engine.batch import PackedRollouts
from stepladder.engine.sampler import COMPACT_BELOW, SampledTokens, collect, draw
from stepladder.spec.run import LoraSpec


class TransformersBackbone:
    """One transformers model; rows are independent, nothing is shared."""

    def __init__(self, model: Any) -> None:
        self.model: Any = model.eval()
        # A policy may draw the pad token; padding_idx would take its embedding's gradient away.
        model.get_input_embeddings().padding_idx = None
        # A model with adapters passes on whatever its base takes.
        plain = model.get_base_model() if lora.is_adapted(model) else model
        known = inspect.signature(plain.forward).parameters
        self._keeps = "logits_to_keep" in known
        # transformers 5.24 renamed the argument and warns of the old name.
        self._cache_name = "cache" if "cache" in known else "past_key_values"

    @classmethod
    def from_folder(
        cls, folder: Path, dtype: torch.dtype, adapters: LoraSpec | None = None
    ) -> TransformersBackbone:
        """Load a local folder, with fresh `adapters` if any are asked for."""
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        return cls(model if adapters is None else lora.wrap(model, adapters))

    def enable_checkpointing(self) -> None:
        """Compute each block again in the backward pass instead of keeping its activations.

        transformers' own switch acts only in training mode, which would switch dropout on too.

        Raises
            SpecError: the architecture marks no blocks.
        """
        from transformers.modeling_layers import GradientCheckpointingLayer

        blocks = [m for m in self.model.modules() if isinstance(m, GradientCheckpointingLayer)]
        if not blocks:
            raise SpecError(
                "SL0138",
                f"{type(self.model).__name__} has no blocks that can be computed again",
                "model.gradient_checkpointing",
                "leave it false",
            )
        for block in blocks:
            block.forward = partial(_computed_again, block.forward)

    def logits_at(self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return logits_AV after the token at `place_A` of rollout `row_A`."""
        keep_K = _between(place_A)
        return self._chosen(self._ask(packed, keep_K, with_hidden=False), keep_K, row_A, place_A)

    def logits_and_hidden_at(
        self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits_AV and the final-normed hidden states [A, D] at the same places."""
        keep_K = _between(place_A)
        found = self._ask(packed, keep_K, with_hidden=True)
        logits_AV = self._chosen(found, keep_K, row_A, place_A)
        return logits_AV, found.hidden_states[-1][row_A, place_A]

    def hidden_at(self, packed: PackedRollouts, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return the final-normed hidden states [A, D]."""
        # Logits at one place only: over a large vocabulary they would outweigh all else.
        found = self._ask(packed, _between(place_A)[:1], with_hidden=True)
        return found.hidden_states[-1][row_A, place_A]

    def _ask(self, packed: PackedRollouts, keep_K: Tensor, *, with_hidden: bool) -> Any:
        """Return the model's output, with logits at the places `keep_K` if it can choose."""
        width = int(packed.length_N.max())
        places = torch.arange(width, device=keep_K.device)
        return self.model(
            input_ids=packed.tokens_NT[:, :width],
            attention_mask=(places < packed.length_N[:, None]).long(),
            use_cache=False,
            output_hidden_states=with_hidden,
            **({"logits_to_keep": keep_K} if self._keeps else {}),
        )

    def _chosen(self, found: Any, keep_K: Tensor, row_A: Tensor, place_A: Tensor) -> Tensor:
        """Return logits_AV out of the model's logits_NKV."""
        logits_NKV = found.logits
        offset_A = place_A - keep_K[0] if self._keeps else place_A
        flat_A = row_A * logits_NKV.shape[1] + offset_A
        return logits_NKV.flatten(0, 1).index_select(0, flat_A)

    @torch.no_grad()
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
        """Draw `counts[i]` completions of prompt i; one uniform number a row and step.

        The numbers are drawn up front, so that a row's answer does not depend on other rows.
        """
        device, num_rows = self.model.device, sum(counts)
        uniform_NT = torch.rand(num_rows, max_new_tokens, generator=generator).to(device)
        if not num_rows:
            return []
        prompt_N = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        prompt_N = prompt_N.to(device)
        logits_PV, cache, mask_PL = self._prefill(prompt_ids)
        cache.batch_select_indices(prompt_N)
        mask_BT, logits_BV = mask_PL[prompt_N], logits_PV[prompt_N]
        is_eos_V = torch.zeros(logits_PV.shape[-1], dtype=torch.bool, device=device)
        is_eos_V[[token for token in eos_ids if token < len(is_eos_V)]] = True
        token_NT = torch.full((num_rows, max_new_tokens), -1, device=device)
        logp_NT = torch.zeros(num_rows, max_new_tokens, device=device)
        row_B = torch.arange(num_rows, device=device)
        done_B = torch.zeros_like(row_B, dtype=torch.bool)
        for step in range(max_new_tokens):
            token_B, logp_B = draw(logits_BV, uniform_NT[row_B, step], temperature)
            token_NT[row_B, step] = token_B
            logp_NT[row_B, step] = logp_B.float()
            done_B = done_B | is_eos_V[token_B]
            num_live = len(done_B) - int(done_B.sum())
            if not num_live or step + 1 == max_new_tokens:
                break
            if num_live < COMPACT_BELOW * len(done_B):
                live = (~done_B).nonzero()[:, 0]
                cache.batch_select_indices(live)
                row_B, token_B, mask_BT = row_B[live], token_B[live], mask_BT[live]
                done_B = done_B[live]
            mask_BT = torch.cat((mask_BT, mask_BT.new_ones(len(row_B), 1)), 1)
            logits_BV = self._decode(token_B, mask_BT, cache)
        return collect(token_NT, logp_NT, is_eos_V, prompt_N)

    def _prefill(self, prompt_ids: Sequence[Sequence[int]]) -> tuple[Tensor, Any, Tensor]:
        """Return the logits after each left-padded prompt, the cache and the mask [P, L]."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.model.config)
        width = max(len(ids) for ids in prompt_ids)
        rows = [[0] * (width - len(ids)) + list(ids) for ids in prompt_ids]
        masks = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompt_ids]
        tokens_PL = torch.tensor(rows, device=self.model.device)
        mask_PL = torch.tensor(masks, device=self.model.device)
        found = self.model(
            input_ids=tokens_PL,
            attention_mask=mask_PL,
            position_ids=(mask_PL.cumsum(1) - 1).clamp_min(0),
            use_cache=True,
            **{self._cache_name: cache},
            **({"logits_to_keep": 1} if self._keeps else {}),
        )
        return found.logits[:, -1], cache, mask_PL

    def _decode(self, token_B: Tensor, mask_BT: Tensor, cache: Any) -> Tensor:
        """Feed one token a row; return the next logits_BV."""
        return self.model(
            input_ids=token_B[:, None],
            attention_mask=mask_BT,
            position_ids=mask_BT.sum(1, keepdim=True) - 1,
            use_cache=True,
            **{self._cache_name: cache},
        ).logits[:, -1]

    def save_folder(self, folder: Path) -> None:
        """Write config and weights; adapters are merged, and stand in a folder of their own too."""
        if lora.is_adapted(self.model):
            lora.save_folder(self.model, folder)
        else:
            self.model.save_pretrained(folder)


def _between(place_A: Tensor) -> Tensor:
    """Return every place from the first to the last of `place_A`."""
    return torch.arange(int(place_A.min()), int(place_A.max()) + 1, device=place_A.device)


def _computed_again(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a block; in a training pass, keep only its inputs."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # Here, since its first call imports torch._dynamo: more than a second.
    from torch.utils.checkpoint import checkpoint

    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
