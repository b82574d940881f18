"""Load a spec from its three sources, in order: class defaults, one file, `--set path=value`.

Every leaf's origin is kept, so that "why is lr 1.5e-6?" has an answer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError

from stepladder.core.errors import SpecError
from stepladder.spec.base import Spec, flatten, with_leaf
from stepladder.spec.convert import convert_report, is_report_tree
from stepladder.spec.explain import explain

S = TypeVar("S", bound=Spec)
COMPLETE = "is the file complete?"
PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """A spec with the origin of each leaf."""

    spec: S
    provenance: Mapping[str, str]
    """Dotted path -> `default`, a file's name, or `--set`."""
    folder: Path | None
    """Folder of the file, for relative paths and dotted-path plug-ins."""


def load_spec(cls: type[S], path: Path | None = None, sets: Sequence[str] = ()) -> Loaded[S]:
    """Load and validate a spec.

    Raises
        SpecError: the file cannot be read, or a setting is refused; all errors at once.
    """
    source = str(path) if path else "defaults"
    preset = find_preset(path) if path else None
    path = preset or path
    tree = _anchor_models(read_tree(path), path.parent) if path else {}
    if is_report_tree(tree) and "algorithm" in cls.model_fields:
        tree = convert_report(tree, source).tree
    origin = dict.fromkeys(flatten(tree), path.name if path else "")
    for assignment in sets:
        key, value = parse_assignment(assignment)
        tree = with_leaf(tree, key, value)
        added = flatten({key: value}) if isinstance(value, Mapping) else {key: value}
        origin.update(dict.fromkeys(added, "--set"))
    try:
        spec = cls.model_validate(tree)
    except ValidationError as error:
        raise explain(error, cls, source if not sets else f"{source} with --set") from error
    provenance = {leaf: origin.get(leaf, "default") for leaf in spec.leaves()}
    return Loaded(spec, provenance, path.parent if path and not preset else None)


def find_preset(path: Path) -> Path | None:
    """Return the packaged settings file that a bare name means; a file of that name comes first."""
    if path.exists() or len(path.parts) != 1:
        return None
    names = [path.name, *(path.name + ending for ending in (".toml", ".yaml"))]
    return next((PRESETS / name for name in names if (PRESETS / name).is_file()), None)


def _anchor_models(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make model folders that lie beside the file absolute; ladder names and others stay.

    Files name things from where they lie, flags from where the command is typed.
    """
    flat = flatten(tree)
    for leaf in ("model.path", "base.model.path"):
        if isinstance(flat.get(leaf), str):
            tree = with_leaf(tree, leaf, _anchored(flat[leaf], folder))
    models = flat.get("axes.model")
    if isinstance(models, list):
        found = [_anchored(model, folder) for model in cast("list[Any]", models)]
        tree = with_leaf(tree, "axes.model", found)
    return tree


def _anchored(name: Any, folder: Path) -> Any:
    if isinstance(name, str) and name and (folder / name).is_dir():
        return str((folder / name).resolve())
    return name


def read_tree(path: Path) -> dict[str, Any]:
    """Read TOML, YAML or JSON by the file's ending.

    Raises
        SpecError: unreadable or half-written files, with line where the parser knows it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fix = "give a TOML, YAML or JSON file of settings"
        raise SpecError("SL0104", f"cannot be read: {reason}", str(path), fix) from error
    if path.suffix in {".yaml", ".yml", ".json"}:
        return _read_yaml(text, path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError("SL0105", f"is not valid TOML: {error}", str(path), COMPLETE) from error


def _read_yaml(text: str, path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Safe, and 1e-4 is a number as in YAML 1.2, not text."""

    pattern = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    cast("Any", Loader).add_implicit_resolver(
        "tag:yaml.org,2002:float", pattern, list("-+0123456789")
    )
    try:
        tree = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        first_line = " ".join(str(error).split())
        raise SpecError(
            "SL0105", f"is not valid YAML: {first_line}", str(path), COMPLETE
        ) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SpecError("SL0105", "does not hold settings at its top level", str(path), COMPLETE)
    return cast("dict[str, Any]", tree)


def parse_assignment(assignment: str) -> tuple[str, Any]:
    """Split `path=value`; the value is TOML, a bare word is a string.

    Raises
        SpecError: no `=` in it.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise SpecError(
            "SL0106", f"{assignment!r} is not path=value", "--set", "write optim.lr=1e-4"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return path.strip(), value
