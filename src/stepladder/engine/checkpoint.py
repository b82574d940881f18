"""Full-state checkpoints: weights, optimiser moments, counters and knobs. No pickle.

A checkpoint appears complete or not at all; every file's hash is in its state, so a damaged one is
named and the one before it is used. A resumed run goes on bit for bit at the same thread count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

FORMAT = 1
WEIGHTS, MOMENTS, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state read back."""

    folder: Path
    weights: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]
    state: Mapping[str, Any]


@dataclass(slots=True)
class CheckpointStore:
    """The checkpoints of one run."""

    folder: Path
    keep: int = 1
    damaged: list[str] = field(default_factory=list)
    """`name: what is wrong` of every checkpoint that was refused."""

    def save(
        self,
        step: int,
        weights: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> Path:
        """Write a checkpoint and drop all but the newest `keep`."""
        target = self.folder / f"step-{step:06d}"
        scratch = self.folder / f".{target.name}.{os.getpid()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        save_file(_plain(weights), scratch / WEIGHTS)
        save_file(_plain(moments), scratch / MOMENTS)
        hashes = {name: file_hash(scratch / name) for name in (WEIGHTS, MOMENTS)}
        body = {"format": FORMAT, "step": step, **state, "sha256": hashes}
        body["state_sha256"] = _text_hash(body)
        (scratch / STATE).write_text(json.dumps(body, indent=1, sort_keys=True), encoding="utf-8")
        for path in (*scratch.iterdir(), scratch):
            _sync(path)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        _sync(self.folder)
        for old in self.names()[self.keep :]:
            shutil.rmtree(self.folder / old)
        return target

    def names(self) -> list[str]:
        """Return the names of complete checkpoints, newest first."""
        if not self.folder.exists():
            return []
        return sorted((p.name for p in self.folder.glob("step-*") if p.is_dir()), reverse=True)

    def load_latest(self) -> Checkpoint | None:
        """Return the newest undamaged checkpoint; damaged ones are named in `damaged`."""
        self._sweep()
        for name in self.names():
            try:
                return read_checkpoint(self.folder / name)
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                self.damaged.append(f"{name}: {error}")
                _log.warning("checkpoint %s is damaged and is not used: %s", name, error)
        return None

    def _sweep(self) -> None:
        """Remove what a killed save left."""
        if self.folder.exists():
            for left in self.folder.glob(".step-*"):
                shutil.rmtree(left, ignore_errors=True)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and verify one checkpoint.

    Raises
        ValueError: a hash or the format does not match.
        OSError: a file is missing.
    """
    body = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if body.get("format") != FORMAT:
        raise ValueError(f"{STATE} has format {body.get('format')}, this version reads {FORMAT}")
    if body.pop("state_sha256", None) != _text_hash(body):
        raise ValueError(f"{STATE} does not match its hash")
    for name, expected in body["sha256"].items():
        if file_hash(folder / name) != expected:
            raise ValueError(f"{name} does not match its hash")
    return Checkpoint(folder, load_file(folder / WEIGHTS), load_file(folder / MOMENTS), body)


def file_hash(path: Path) -> str:
    """Return a file's sha256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _text_hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    with torch.no_grad():
        return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
