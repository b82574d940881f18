"""The embedded ladder: three sizes of one tiny Llama, its characters and its warm-up recipe.

Built from demonstrations on the user's machine in about a minute, so that a rehearsal needs no
download. No torch here: a plan reads sizes and costs without it; `engine/warmup.py` trains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
UNKNOWN = "?"
"""Read in place of a character outside the vocabulary."""
CHARACTERS: tuple[str, ...] = (
    PAD,
    BOS,
    EOS,
    *TAGS,
    "\n",
    *(chr(code) for code in range(ord(" "), ord("~") + 1)),
)
"""The vocabulary in id order: special tokens, tags (one token each), newline, printable ASCII."""
TOKEN_ID: Mapping[str, int] = MappingProxyType({text: i for i, text in enumerate(CHARACTERS)})
PAD_ID, BOS_ID, EOS_ID = (TOKEN_ID[text] for text in (PAD, BOS, EOS))
CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
MAX_POSITIONS = 512
_PIECE = re.compile("|".join(re.escape(tag) for tag in TAGS) + r"|[\s\S]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderSize:
    """One rung; `ratio` is its parameter count over the smallest one's, within 5 %."""

    name: str
    ratio: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    initializer_range: float
    """Standard deviation of the first weights, tuned by size: the usual 0.02 starts too flat."""

    @property
    def num_parameters(self) -> int:
        """Parameters, the tied embedding counted once."""
        width = self.hidden_size
        layer = 4 * width * width + 3 * width * self.intermediate_size + 2 * width
        return len(CHARACTERS) * width + self.num_layers * layer + width


LADDER: Mapping[str, LadderSize] = MappingProxyType(
    {
        size.name: size
        for size in (
            LadderSize(
                name="ladder-x1",
                ratio=1,
                hidden_size=48,
                num_layers=2,
                num_heads=2,
                intermediate_size=128,
                initializer_range=0.08,
            ),
            LadderSize(
                name="ladder-x2",
                ratio=2,
                hidden_size=64,
                num_layers=2,
                num_heads=4,
                intermediate_size=208,
                initializer_range=0.12,
            ),
            LadderSize(
                name="ladder-x4",
                ratio=4,
                hidden_size=96,
                num_layers=2,
                num_heads=4,
                intermediate_size=272,
                initializer_range=0.12,
            ),
        )
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupRecipe:
    """How a base policy is trained; the same steps and data for every size."""

    steps: int = 700
    batch_size: int = 32
    learning_rate: float = 6e-3
    """Peak at the smallest size; a size of ratio r takes 1 / r ** learning_rate_power of it."""
    learning_rate_power: float = 0.3
    warmup_share: float = 0.05
    """Share of the steps over which the learning rate rises; then a cosine to a tenth."""
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    corrupted_share: float = 0.65
    """Share of demonstrations that end in a wrong answer: the headroom that RL can win back."""
    seed: int = 1

    def peak_learning_rate(self, size: LadderSize) -> float:
        """Return the peak learning rate of a rung."""
        return self.learning_rate / size.ratio**self.learning_rate_power


def token_ids(text: str) -> list[int]:
    """Return the ids of a text, without adding special tokens; tags are one token each."""
    unknown = TOKEN_ID[UNKNOWN]
    return [TOKEN_ID.get(piece, unknown) for piece in _PIECE.findall(text)]


def ladder_config(size: LadderSize) -> dict[str, Any]:
    """Return the Hugging Face LlamaConfig of a rung as a plain dict."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(CHARACTERS),
        "hidden_size": size.hidden_size,
        "num_hidden_layers": size.num_layers,
        "num_attention_heads": size.num_heads,
        "num_key_value_heads": size.num_heads,
        "intermediate_size": size.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "max_position_embeddings": MAX_POSITIONS,
        "initializer_range": size.initializer_range,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
    }
