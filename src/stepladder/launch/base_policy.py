"""Base policies of the ladder: where they lie in the cache, and building one exactly once.

No torch here: the worker, which may import the engine, hands in the function that trains.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stepladder.core.errors import SpecError
from stepladder.spec.base import content_hash
from stepladder.spec.ladder import LADDER, LadderSize, WarmupRecipe, ladder_config
from stepladder.store import lock
from stepladder.store.cache import cache_folder

RECIPE_VERSION = 1
"""Raised when warm-up code changes what it makes, so that old cache entries are not taken."""

Build = Callable[[LadderSize, WarmupRecipe, Path], object]
"""Trains a size and leaves a complete policy folder at the path, at once or not at all."""


def base_policy_folder(
    model_path: str, task: Mapping[str, Any], folder: Path | None = None
) -> Path:
    """Return where a policy is, or will be once built; `folder` is what relative paths are from.

    A ladder size is keyed by its shape, the task that it is warmed up on (files named by the
    task's settings by their content) and the recipe. Every other path is returned as it is.
    """
    size = LADDER.get(model_path)
    if size is None:
        return _local(model_path, folder)
    recipe = WarmupRecipe()
    key = {
        "version": RECIPE_VERSION,
        "config": ladder_config(size),
        "ratio": size.ratio,
        "recipe": {f.name: getattr(recipe, f.name) for f in dataclasses.fields(recipe)},
        "task": dict(task),
        "files": dict(_file_digests(task, folder)),
    }
    return cache_folder() / "ladder" / content_hash(key)


def is_ready(policy: Path) -> bool:
    """Tell whether a policy folder is there; it appears whole, so its config is proof."""
    return (policy / "config.json").is_file()


def ensure_base_policy(
    model_path: str, task: Mapping[str, Any], build: Build, folder: Path | None = None
) -> Path:
    """Return the policy's folder, building a missing ladder size; two processes never build twice.

    Raises
        SpecError: a local path that holds no model.
    """
    policy = base_policy_folder(model_path, task, folder)
    if is_ready(policy):
        return policy
    size = LADDER.get(model_path)
    if size is None:
        raise SpecError(
            "SL0107",
            f"no model at {model_path!r}",
            "model.path",
            f"name a folder with config.json, or one of {', '.join(LADDER)}",
        )
    with lock.hold(policy.with_name(f"{policy.name}.lock"), "this base policy", wait_s=None):
        if not is_ready(policy):
            build(size, WarmupRecipe(), policy)
    return policy


def _local(model_path: str, folder: Path | None) -> Path:
    path = Path(model_path).expanduser()
    beside = path if folder is None else folder / path
    return beside if is_ready(beside) else path


def _file_digests(task: Mapping[str, Any], folder: Path | None) -> Iterator[tuple[str, str]]:
    """Yield setting -> digest for every setting that names a file, and for a plug-in's module."""
    for name, value in sorted(task.items()):
        if not isinstance(value, str) or not value:
            continue
        text = f"{value.partition(':')[0].replace('.', '/')}.py" if name == "use" else value
        for base in (folder, Path()):
            path = None if base is None else base / text
            if path is not None and path.is_file():
                yield name, hashlib.sha256(path.read_bytes()).hexdigest()
                break
