"""The tasks there are, and how a `{type = ...}` or `{use = ...}` mapping becomes one.

Called by the study's preflight, the worker and `stepladder tasks`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from stepladder.core.errors import PluginError, boundary
from stepladder.core.registry import Registry, on_path
from stepladder.core.seams import Task
from stepladder.spec.base import Spec
from stepladder.spec.explain import explain

TASKS: Registry[Any] = Registry(
    "tasks",
    {
        "arithmetic": "stepladder.tasks.arithmetic:ArithmeticSpec",
        "countdown": "stepladder.tasks.countdown:CountdownSpec",
        "letters": "stepladder.tasks.letters:LettersSpec",
        "rows": "stepladder.tasks.rows:RowsSpec",
    },
)
"""A factory is a Spec with `build() -> Task`, a callable of the settings, or a ready Task."""

FILE_LEAVES: tuple[str, ...] = ("path", "eval_path", "holdout_path")


def build_task(mapping: Mapping[str, Any], where: str = "task", folder: Path | None = None) -> Task:
    """Build the task that a mapping names; `folder` is the study's, for paths and plug-ins.

    Raises
        SpecError: an unknown name or a refused setting.
        PluginError: foreign code failed or gave something that is no task.
    """
    factory = TASKS.resolve(mapping, where, folder)
    name = str(mapping.get("use") or mapping.get("type"))
    anchored = anchor_paths(mapping, folder)
    settings = {key: value for key, value in anchored.items() if key not in {"type", "use"}}
    if inspect.isclass(factory) and issubclass(factory, Spec):
        task = _from_spec(factory, settings, where, name)
    elif not callable(factory):
        task = factory
    else:
        with on_path(folder), boundary(f"task {name!r}"):
            task = cast("Callable[..., Any]", factory)(**settings)
    if not isinstance(task, Task) or inspect.isclass(task):
        raise PluginError(
            "SL0503",
            f"task {name!r} gave a {type(task).__name__}, which is no task",
            where,
            "it needs name, outcome, prompts(split) and oracle(prompt)",
        )
    return task


def _from_spec(factory: type[Spec], settings: Mapping[str, Any], where: str, name: str) -> Any:
    try:
        spec: Any = factory.model_validate(settings)
    except ValidationError as error:
        raise explain(error, factory, where) from error
    with boundary(f"task {name!r}"):
        return spec.build()


def anchor_paths(mapping: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return the mapping with the file names of a `rows` task made absolute.

    Relative names start at the folder of the study's file. A plan stores the result, so that a
    worker finds the files wherever it is started.
    """
    anchored = dict(mapping)
    if mapping.get("type") != "rows":
        return anchored
    for leaf in FILE_LEAVES:
        name = mapping.get(leaf)
        if isinstance(name, str) and name:
            anchored[leaf] = str(((folder or Path()) / name).resolve())
    return anchored
