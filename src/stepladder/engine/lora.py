"""Low-rank adapters (LoRA) on a transformers model, through peft; imported only when asked for.

Only the adapters train; the base's weights stay as they are on disk. peft keeps adapters of a
half-precision model in float32. Adapter A is drawn from a fixed seed and B is 0, so that the
adapted model starts equal to its base, the same in every run.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepladder.core.errors import SpecError
from stepladder.spec.run import LoraSpec

ADAPTER_FOLDER = "adapter"
INIT_SEED = 20_260
"""Seed of every adapter's start; the run's seed draws data, not weights."""
ATTENTION_MARKS = ("attn", "attention")


def wrap(model: Any, spec: LoraSpec) -> Any:
    """Return the model with trainable adapters in place, everything else frozen.

    Raises
        SpecError: peft is missing, or the architecture has none of the layers asked for.
    """
    if find_spec("peft") is None:
        raise SpecError(
            "SL0136", "LoRA needs the package peft", "model.lora", "pip install 'stepladder[train]'"
        )
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,  # pyright: ignore[reportArgumentType]  # a float serves as well
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear" if spec.targets == "all_linear" else attention_layers(model),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # A name that transformers 5.24 calls old, and a setting that peft mends itself for each
        # transposed layer (GPT-2): no user can act on either.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to")
        torch.manual_seed(INIT_SEED)
        try:
            return get_peft_model(model, config).eval()
        except ValueError as error:
            raise SpecError(
                "SL0137", f"this model takes no adapters: {error}", "model.lora.targets"
            ) from error


def attention_layers(model: Any) -> list[str]:
    """Return the names of the linear layers inside attention modules.

    Raises
        SpecError: there are none.
    """
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
        if any(mark in part.lower() for part in name.split(".") for mark in ATTENTION_MARKS)
    ]
    if not found:
        raise SpecError(
            "SL0137",
            "no linear layer of this model stands in an attention module",
            "model.lora.targets",
            "take all_linear",
        )
    return found


def is_adapted(model: Any) -> bool:
    """Return whether `wrap` made this model."""
    return hasattr(model, "peft_config")


@torch.no_grad()
def merged_state(model: Any) -> dict[str, Tensor]:
    """Return the base model's weights by its own names, with the adapters added in.

    Computed aside: merging in place and back would leave rounding in the weights that train.
    """
    base, merged = model.get_base_model(), {}
    modules = dict(base.named_modules())
    for name, weight in base.state_dict().items():
        owner, _, leaf = name.rpartition(".")
        if ".lora_" in f".{owner}":
            continue
        if owner.endswith(".base_layer") and leaf == "weight":
            delta = modules[owner.removesuffix(".base_layer")].get_delta_weight("default")
            weight = (weight + delta).to(weight.dtype).cpu()
        merged[name.replace(".base_layer.", ".")] = weight
    return merged


def save_folder(model: Any, folder: Path) -> None:
    """Write the merged model as a plain Hugging Face folder, and the adapters beside it."""
    model.get_base_model().save_pretrained(folder, state_dict=merged_state(model))
    model.save_pretrained(folder / ADAPTER_FOLDER)
