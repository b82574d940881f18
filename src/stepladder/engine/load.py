"""Choose and load the backbone of a policy's folder."""

from __future__ import annotations

from pathlib import Path

import torch

from stepladder.core.errors import SpecError
from stepladder.engine.llama import CompactLlama
from stepladder.engine.llama_shape import supported
from stepladder.engine.policy import Backbone, CausalPolicy, CompactBackbone
from stepladder.engine.text import read_json
from stepladder.spec.run import ModelSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
ACCELERATE_FROM = 20_000_000
"""Parameters from which an accelerator is used when there is one: below, its launch latency costs
more than its arithmetic saves, and the ladder must give the same numbers everywhere."""


def load_policy(
    folder: Path, spec: ModelSpec, temperature: float, *, prefer_compact: bool = True
) -> CausalPolicy:
    """Return the policy of a Hugging Face folder, on the device that suits its size.

    Raises
        SpecError: the folder holds no loadable causal LM, or the model cannot take adapters or
            checkpointing that were asked for.
    """
    config = read_json(folder / "config.json")
    if not config:
        raise SpecError(
            "SL0133",
            f"{str(folder)!r} holds no config.json",
            "model.path",
            "give the folder of a Hugging Face causal LM, or ladder-x1, ladder-x2, ladder-x4",
        )
    try:
        backbone = _backbone(folder, spec, prefer_compact and not supported(config))
    except SpecError:
        raise
    except (OSError, ValueError) as error:
        raise SpecError(
            "SL0134", f"the weights cannot be loaded: {error}", f"model.path {folder}"
        ) from error
    size = sum(weight.numel() for weight in backbone.model.parameters())
    if size >= ACCELERATE_FROM and torch.cuda.is_available():
        backbone.model.to("cuda")
    return CausalPolicy(backbone, temperature)


def _backbone(folder: Path, spec: ModelSpec, compact: bool) -> Backbone:
    dtype = DTYPES[spec.dtype]
    if compact and spec.lora is None:
        model = CompactLlama.from_folder(folder, dtype)
        model.checkpointing = spec.gradient_checkpointing
        return CompactBackbone(model)
    from stepladder.engine.transformers_model import TransformersBackbone

    backbone = TransformersBackbone.from_folder(folder, dtype, spec.lora)
    if spec.gradient_checkpointing:
        backbone.enable_checkpointing()
    return backbone
