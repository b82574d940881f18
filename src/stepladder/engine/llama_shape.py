"""What a Hugging Face Llama config says about the forward, and why one may be refused. No tensors.

Called by `engine/llama.py`, and by whoever chooses between it and transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


def supported(config: Mapping[str, Any]) -> str | None:
    """Return why this Hugging Face config cannot run here; None when it can."""
    if config.get("model_type") != "llama":
        return f"model_type is {config.get('model_type')!r}, not 'llama'"
    missing = [key for key in LlamaShape.REQUIRED if key not in config]
    if missing:
        return f"the config lacks {', '.join(missing)}"
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            return f"{key} is true; biases are not implemented"
    if config.get("hidden_act", "silu") != "silu":
        return f"hidden_act is {config['hidden_act']!r}, not 'silu'"
    if (config.get("pretraining_tp") or 1) != 1:
        return "pretraining_tp is not 1"
    if config.get("quantization_config"):
        return "the weights are quantized"
    rope = rope_settings(config)
    if rope["rope_type"] != "default":
        return f"RoPE scaling {rope['rope_type']!r} is not implemented"
    heads = config["num_attention_heads"]
    if heads % (config.get("num_key_value_heads") or heads):
        return "num_attention_heads is not a multiple of num_key_value_heads"
    if (config.get("head_dim") or config["hidden_size"] // heads) % 2:
        return "the head size is odd"
    return None


def rope_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return rope_type and rope_theta from either the transformers 4 or the 5 layout."""
    found = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = found.get("rope_type") or found.get("type") or "default"
    theta = found.get("rope_theta") or config.get("rope_theta") or 10_000.0
    return {"rope_type": kind, "rope_theta": float(theta)}


class LlamaShape(NamedTuple):
    """The numbers of a config that the forward needs."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_key_heads: int
    head_size: int
    intermediate_size: int
    norm_eps: float
    rope_theta: float
    tied: bool
    init_std: float

    REQUIRED = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LlamaShape:
        """Read a Hugging Face config.

        Raises
            ValueError: the config is outside what this forward implements.
        """
        reason = supported(config)
        if reason is not None:
            raise ValueError(f"CompactLlama cannot run this model: {reason}")
        heads = config["num_attention_heads"]
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_key_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate_size=config["intermediate_size"],
            norm_eps=config.get("rms_norm_eps", 1e-6),
            rope_theta=rope_settings(config)["rope_theta"],
            tied=bool(config.get("tie_word_embeddings", False)),
            init_std=config.get("initializer_range", 0.02),
        )
