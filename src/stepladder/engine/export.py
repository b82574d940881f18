"""Write a checkpoint's policy as a Hugging Face folder: `python -m stepladder.engine.export`.

A process of its own, so that the command itself never loads torch. It reads one JSON order from
standard input and answers with one JSON object: `{}`, or the error.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from stepladder.core.errors import LabError, StoreError
from stepladder.engine.checkpoint import WEIGHTS, CheckpointStore, read_checkpoint
from stepladder.engine.load import load_policy
from stepladder.engine.text import copy_tokenizer
from stepladder.spec.run import ModelSpec

BEST = "best"
"""Asks for the checkpoint with the highest held-out score."""
ANY_TEMPERATURE = 1.0
"""A policy has one; nothing is sampled here."""


def export_checkpoint(
    checkpoints: Path, name: str, source: Path, spec: ModelSpec, target: Path
) -> str:
    """Write a policy folder, complete or not at all, and return the checkpoint's name.

    Raises
        StoreError: the checkpoint is damaged, of another model, or none has a score.
    """
    folder = checkpoints / (_best(checkpoints) if name == BEST else name)
    try:
        weights = read_checkpoint(folder).part(WEIGHTS)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise StoreError(
            "SL0240", f"cannot be read: {error}", str(folder), "export another checkpoint"
        ) from error
    policy = load_policy(source, spec, ANY_TEMPERATURE)
    own = policy.named_parameters()
    # A critic's head trains with the policy and is no part of the exported model.
    saved = {n: w for n, w in weights.items() if n in own or not n.startswith("value_head.")}
    if {n: w.shape for n, w in own.items()} != {n: w.shape for n, w in saved.items()}:
        raise StoreError(
            "SL0410",
            f"holds the weights of another model than {source}",
            str(folder),
            "give the model that the run began with: --model",
        )
    with torch.no_grad():
        for parameter, weight in own.items():
            weight.copy_(saved[parameter])
    scratch = target.with_name(f".{target.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    policy.save_folder(scratch)
    copy_tokenizer(source, scratch)
    scratch.rename(target)
    return folder.name


def _best(checkpoints: Path) -> str:
    found = CheckpointStore(checkpoints).best()
    if found is None:
        raise StoreError(
            "SL0241",
            "no checkpoint has a held-out score",
            str(checkpoints),
            "name one of them, such as the newest",
        )
    return found


def main() -> int:
    """Carry out the order on standard input."""
    order: dict[str, Any] = json.load(sys.stdin)
    try:
        name = export_checkpoint(
            Path(order["checkpoints"]),
            order["name"],
            Path(order["source"]),
            ModelSpec.model_validate(order["model"]),
            Path(order["target"]),
        )
    except LabError as error:
        answer = {"error": [error.code, error.what, error.where, error.fix]}
        sys.stdout.write(json.dumps(answer))
        return error.exit_code
    sys.stdout.write(json.dumps({"checkpoint": name}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
