"""The registry: three doors to a plug-in, in order: built-in name, dotted path, entry point.

`{type = "arithmetic"}` is a built-in or an entry point of the group; `{use = "my_rewards:strict"}`
is a dotted path (the study's folder is on the path while it is resolved).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from stepladder.core.errors import PluginError, SpecError

T = TypeVar("T")


@contextmanager
def on_path(folder: Path | None) -> Generator[None]:
    """Put `folder` first on the import path for the time of the block."""
    if folder is None:
        yield
        return
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


class Registry(Generic[T]):
    """Name -> factory for one seam."""

    def __init__(self, seam: str, builtin: Mapping[str, str]) -> None:
        """Take the seam's plural name (entry-point group `stepladder.<seam>`) and the built-ins.

        `builtin` maps a name to `module:attribute`, so that nothing is imported until asked for.
        """
        self.seam = seam
        self._builtin = dict(builtin)
        self._added: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a factory under `name`."""

        def add(factory: T) -> T:
            self._added[name] = factory
            return factory

        return add

    def names(self) -> tuple[str, ...]:
        """Return every known name: built-in, registered, published."""
        published = importlib.metadata.entry_points(group=f"stepladder.{self.seam}")
        return tuple(sorted({*self._builtin, *self._added, *(e.name for e in published)}))

    def resolve(self, mapping: Mapping[str, Any], where: str, folder: Path | None = None) -> T:
        """Return the factory that a `{type = ...}` or `{use = ...}` mapping names.

        Raises
            SpecError: neither key is there, or the name is unknown (with a suggestion).
            PluginError: the named code cannot be imported; plug-in and door are named.
        """
        if "use" in mapping:
            with on_path(folder):
                return self._load(str(mapping["use"]), "dotted path")
        if "type" not in mapping:
            raise SpecError("SL0110", "needs a `type` or `use`", where, f"one of {self._listing()}")
        return self.get(str(mapping["type"]), f"{where}.type")

    def get(self, name: str, where: str = "") -> T:
        """Return the factory registered under `name`."""
        if name in self._added:
            return self._added[name]
        if name in self._builtin:
            return self._load(self._builtin[name], "built-in name")
        for entry in importlib.metadata.entry_points(group=f"stepladder.{self.seam}", name=name):
            return self._load(entry.value, "entry point")
        close = get_close_matches(name, self.names(), n=1)
        fix = f"did you mean {close[0]!r}?" if close else f"one of {self._listing()}"
        raise SpecError("SL0111", f"unknown {self.seam.rstrip('s')} {name!r}", where, fix)

    def _listing(self) -> str:
        return ", ".join(self.names())

    def _load(self, target: str, door: str) -> T:
        module_name, _, attribute = target.partition(":")
        try:
            value: Any = importlib.import_module(module_name)
            for part in attribute.split(".") if attribute else ():
                value = getattr(value, part)
        except (ImportError, AttributeError) as error:
            raise PluginError(
                "SL0502",
                f"cannot load {target!r} by {door}: {error}",
                self.seam,
                "write module:attribute, with the module on the path or beside study.toml",
            ) from error
        return value
