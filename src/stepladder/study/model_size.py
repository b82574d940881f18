"""Sizes of policies without torch: the ladder's by name, a folder's from its files.

Used by `plan` for the model axis' ratios and by `preflight` for paths and disk space.
"""

from __future__ import annotations

import json
import math
import struct
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from stepladder.core.errors import PlanError
from stepladder.spec.ladder import LADDER


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
    folder = Path(path)
    shards = sorted(folder.glob("*.safetensors"))
    if shards:
        return sum(_tensors_of(shard) for shard in shards)
    return _from_config(folder / "config.json")


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


def _from_config(file: Path) -> int | None:
    """Estimate a Llama-type model's parameters from its configuration."""
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        width, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        groups = int(config.get("num_key_value_heads") or heads)
        inner, words = int(config["intermediate_size"]), int(config["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    head = int(config.get("head_dim") or width // heads)
    attention = width * head * (2 * heads + 2 * groups)
    embeddings = words * width * (1 if config.get("tie_word_embeddings") else 2)
    return embeddings + layers * (attention + 3 * width * inner + 2 * width) + width
