"""Full-state checkpoints: named sets of tensors, and counters and knobs as JSON. No pickle.

A checkpoint appears complete or not at all; every file's hash is in its state, so a damaged one is
named and the one before it is used. A resumed run goes on bit for bit at the same thread count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from stepladder.core.errors import StoreError

FORMAT = 2
STATE, SUFFIX = "state.json", ".safetensors"
WEIGHTS, OPTIMIZER = "weights", "optimizer"
"""Stems of the policy's weights and of its optimiser's state; those of other optimisers end so."""
_DAMAGE = (OSError, ValueError, KeyError, AttributeError, SafetensorError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state read back."""

    folder: Path
    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    """Stem -> name -> tensor; a stem saved without tensors is not there."""
    state: Mapping[str, Any]

    def part(self, stem: str) -> Mapping[str, Tensor]:
        """Return one stem's tensors; empty when it had none."""
        return self.tensors.get(stem, {})


@dataclass(slots=True)
class CheckpointStore:
    """The checkpoints of one run."""

    folder: Path
    keep: int = 1
    """How many of the newest are kept."""
    keep_best: int = 0
    """How many of the others are kept for their score."""
    damaged: list[str] = field(default_factory=list)
    """`name: what is wrong` of every checkpoint that was refused."""
    _refused: set[str] = field(default_factory=set)

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        state: Mapping[str, Any],
        score: float | None = None,
    ) -> Path:
        """Write a checkpoint of tensors by stem, then drop those that are not to be kept."""
        target = self.folder / f"step-{step:06d}"
        scratch = self.folder / f".{target.name}.{os.getpid()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        hashes: dict[str, str] = {}
        for stem, named in tensors.items():
            if named:
                path = scratch / f"{stem}{SUFFIX}"
                save_file(_plain(named), path)
                hashes[path.name] = file_hash(path)
        kept_score = score if score is not None and math.isfinite(score) else None
        body = {"format": FORMAT, "step": step, "score": kept_score, **state, "sha256": hashes}
        body["state_sha256"] = _text_hash(body)
        (scratch / STATE).write_text(json.dumps(body, indent=1, sort_keys=True), encoding="utf-8")
        for path in (*scratch.iterdir(), scratch):
            _sync(path)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        _sync(self.folder)
        self._refused.discard(target.name)
        self._drop()
        return target

    def _drop(self) -> None:
        # A refused one must not push out a good one; it stays, for whoever wants to look at it.
        names = [name for name in self.names() if name not in self._refused]
        rest = names[self.keep :]
        best = self._by_score(rest)[: self.keep_best]
        for name in set(rest) - set(best):
            shutil.rmtree(self.folder / name)

    def _by_score(self, names: list[str]) -> list[str]:
        """Return the scored ones of `names`, best first; of equal ones the earlier."""
        scores = {name: _score(self.folder / name) for name in names}
        found = [(-score, name) for name, score in scores.items() if score is not None]
        return [name for _, name in sorted(found)]

    def best(self) -> str | None:
        """Return the name of the best-scored checkpoint; None: none has a score."""
        return next(iter(self._by_score(self.names())), None)

    def names(self) -> list[str]:
        """Return the names of complete checkpoints, newest first."""
        if not self.folder.exists():
            return []
        found = [p.name for p in self.folder.glob("step-*") if p.is_dir()]
        return sorted(found, key=lambda name: (len(name), name), reverse=True)

    def load_latest(self, *, needs_optimizer: bool = True) -> Checkpoint | None:
        """Return the newest undamaged checkpoint; damaged ones are named in `damaged`.

        `needs_optimizer=False` also takes one whose optimiser state is lost, without that state.

        Raises
            StoreError: nothing but an optimiser state is lost, and no other checkpoint is whole:
                beginning the run anew would throw good weights away.
        """
        self._sweep()
        lost = None
        for name in self.names():
            try:
                return read_checkpoint(self.folder / name, needs_optimizer=needs_optimizer)
            except _DAMAGE as error:
                self.damaged.append(f"{name}: {error}")
                self._refused.add(name)
                _log.warning("checkpoint %s is damaged and is not used: %s", name, error)
                if lost is None and _is_readable(self.folder / name):
                    lost = self.damaged[-1]
        if lost is not None:
            raise StoreError(
                "SL0411",
                f"the optimiser state is lost: {lost}",
                str(self.folder),
                "put the file back, or go on without it: --reset-optimizer",
            )
        return None

    def _sweep(self) -> None:
        """Remove what a killed save left."""
        if self.folder.exists():
            for left in self.folder.glob(".step-*"):
                shutil.rmtree(left, ignore_errors=True)


def read_checkpoint(folder: Path, *, needs_optimizer: bool = True) -> Checkpoint:
    """Read and verify one checkpoint; without `needs_optimizer`, lost optimiser files are left out.

    Raises
        ValueError: a hash or the format does not match.
        OSError: a file is missing.
    """
    body = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if body.get("format") != FORMAT:
        raise ValueError(f"{STATE} has format {body.get('format')}, this version reads {FORMAT}")
    if body.pop("state_sha256", None) != _text_hash(body):
        raise ValueError(f"{STATE} does not match its hash")
    tensors: dict[str, Mapping[str, Tensor]] = {}
    for name, expected in body["sha256"].items():
        stem = name.removesuffix(SUFFIX)
        try:
            if file_hash(folder / name) != expected:
                raise ValueError(f"{name} does not match its hash")
            tensors[stem] = load_file(folder / name)
        except _DAMAGE:
            if needs_optimizer or not stem.endswith(OPTIMIZER):
                raise
    return Checkpoint(folder, int(body["step"]), tensors, body)


def _is_readable(folder: Path) -> bool:
    """Return whether a refused checkpoint lacks nothing but optimiser state."""
    try:
        read_checkpoint(folder, needs_optimizer=False)
    except _DAMAGE:
        return False
    return True


def file_hash(path: Path) -> str:
    """Return a file's sha256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _score(folder: Path) -> float | None:
    """Return a checkpoint's score without reading its tensors; None: it has none or is damaged."""
    try:
        score = json.loads((folder / STATE).read_text(encoding="utf-8")).get("score")
    except (OSError, ValueError, AttributeError):
        return None
    return float(score) if isinstance(score, int | float) else None


def _text_hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU, none sharing memory: safetensors refuses either."""
    plain: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        flat = value.detach().cpu().contiguous()
        memory = flat.untyped_storage().data_ptr()
        plain[name] = flat.clone() if memory in seen else flat
        seen.add(memory)
    return plain


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
