"""Sizes of policies without torch: the ladder's by name, a folder's from its files.

Used by `plan` for the model axis' ratios and by `preflight` for paths and disk space.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from stepladder.core.errors import PlanError
from stepladder.spec.ladder import LADDER, ladder_config
from stepladder.spec.model_shape import ModelShape, read_shape_name


def check_model(path: str, where: str) -> None:
    """Refuse a model that is neither a rung of the ladder nor a folder with a config.json.

    Raises
        PlanError: with the name that was probably meant.
    """
    if path in LADDER:
        return
    folder = Path(path)
    if (folder / "config.json").is_file():
        return
    if read_shape_name(path):
        raise PlanError(
            "SL0202",
            f"{path!r} is a shape to plan with: it has no weights to train",
            where,
            "give --model with a model folder or a ladder name; stepladder plan shows its costs",
        )
    close = get_close_matches(path, LADDER, n=1, cutoff=0.6)
    if close:
        fix = f"did you mean {close[0]!r}?"
    else:
        fix = f"use {', '.join(LADDER)} or the folder of a Hugging Face causal LM"
    what = (
        f"the folder {path!r} has no config.json"
        if folder.is_dir()
        else f"the model {path!r} does not exist"
    )
    raise PlanError("SL0202", what, where, fix)


def num_parameters(path: str) -> int | None:
    """Return a policy's parameters; None when its folder holds nothing to count by."""
    if path in LADDER:
        return LADDER[path].num_parameters
    if shape := read_shape_name(path):
        return shape.num_parameters
    folder = Path(path)
    shards = sorted(folder.glob("*.safetensors"))
    if shards:
        return sum(_tensors_of(shard) for shard in shards)
    shape = _from_config(folder / "config.json")
    return shape.num_parameters if shape else None


def model_shape(path: str) -> ModelShape | None:
    """Return a policy's sizes; None when its folder holds no Llama-type configuration."""
    if path in LADDER:
        return _from_settings(ladder_config(LADDER[path]))
    return read_shape_name(path) or _from_config(Path(path) / "config.json")


def model_ratio(path: str, base: str) -> float:
    """Return the size of `path` as a multiple of `base`'s; ladder rungs count by their name.

    Raises
        PlanError: a folder's size cannot be read.
    """
    if path in LADDER and base in LADDER:
        return LADDER[path].ratio / LADDER[base].ratio
    counts = {name: num_parameters(name) for name in (path, base)}
    for name, count in counts.items():
        if not count:
            raise PlanError(
                "SL0203",
                f"the number of parameters of {name!r} cannot be read",
                "axes.model",
                "the folder needs safetensors weights, or a Llama-type config.json",
            )
    ratio = cast("int", counts[path]) / cast("int", counts[base])
    return float(f"{ratio:.4g}")


def model_label(path: str) -> str:
    """Return a short name for cell ids: the rung, or the folder's own name."""
    name = path if path in LADDER else Path(path).resolve().name
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _tensors_of(file: Path) -> int:
    """Count parameters from a safetensors header: 8 bytes of length, then JSON."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(length))
        shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise PlanError(
            "SL0203", f"the weights cannot be read: {error}", str(file), "is the file complete?"
        ) from error
    return sum(math.prod(shape) for shape in shapes)


def _from_config(file: Path) -> ModelShape | None:
    try:
        return _from_settings(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _from_settings(config: Mapping[str, Any]) -> ModelShape:
    """Read a Llama-type configuration."""
    width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return ModelShape(
        hidden_size=width,
        num_layers=int(config["num_hidden_layers"]),
        num_heads=heads,
        num_key_value_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or width // heads),
        intermediate_size=int(config["intermediate_size"]),
        vocabulary_size=int(config["vocab_size"]),
        tied_embedding=bool(config.get("tie_word_embeddings")),
    )
