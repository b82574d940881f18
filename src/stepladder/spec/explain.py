"""Turn pydantic's errors into ours: key, value, rule, suggestion, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from stepladder.core.errors import LabError, SpecError


class SpecErrors(SpecError):  # noqa: N818  (plural: it carries several)
    """Several settings are wrong; one line each."""

    def __init__(self, errors: Sequence[SpecError]) -> None:
        first = errors[0]
        super().__init__(first.code, first.what, first.where, first.fix)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(LabError.__str__(error) for error in self.errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SpecErrors, (self.errors,))


def explain(error: ValidationError, model: type[BaseModel], source: str) -> SpecErrors:
    """Return our error for pydantic's; `source` is the file or flag that the values came from."""
    lines: list[SpecError] = []
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        lines.extend(_one(item, path, model, source))
    return SpecErrors(lines)


def _one(item: Any, path: str, model: type[BaseModel], source: str) -> Iterable[SpecError]:
    where = f"{source}: {path}" if path else source
    kind = str(item["type"])
    if kind == "extra_forbidden":
        yield SpecError("SL0101", "unknown setting", where, _suggest(path, model))
    elif kind == "missing":
        yield SpecError("SL0102", "is required", where, "set it")
    elif kind == "value_error":
        for line in str(item["msg"]).removeprefix("Value error, ").split("\n"):
            inner, what, fix = [*line.split("\t"), "", ""][:3]
            dotted = ".".join(part for part in (path, inner) if part) if what else path
            yield SpecError("SL0103", what or inner, f"{source}: {dotted}", fix)
    else:
        value = item.get("input")
        shown = repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__
        rule = str(item["msg"])[0].lower() + str(item["msg"])[1:]
        yield SpecError("SL0102", f"{shown} is refused: {rule}", where, _fix(kind, value))


def _fix(kind: str, value: object) -> str:
    if kind in ("float_type", "int_type"):
        number = "a plain number, such as 1e-4" if kind == "float_type" else "a whole number"
        return f"write {number}, without quotes" if isinstance(value, str) else f"write {number}"
    if kind == "finite_number":
        return "NaN and infinity cannot be used"
    if kind.startswith(("greater", "less")):
        return "choose a value inside the limit"
    return "" if value is None else "see docs/reference/settings.md"


def known_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted path of every leaf of a spec class."""
    paths: list[str] = []
    for name, info in model.model_fields.items():
        inner = _model_of(info.annotation)
        if inner is None:
            paths.append(prefix + name)
        else:
            paths.extend(known_paths(inner, f"{prefix}{name}."))
    return paths


def _model_of(annotation: Any) -> type[BaseModel] | None:
    candidates = (annotation, *get_args(annotation))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _suggest(path: str, model: type[BaseModel]) -> str:
    paths = known_paths(model)
    by_leaf: dict[str, list[str]] = {}
    for known in paths:
        by_leaf.setdefault(known.rpartition(".")[2], []).append(known)
    close = get_close_matches(path, paths, n=1, cutoff=0.75)
    if not close:
        leaf = path.rpartition(".")[2]
        names = get_close_matches(leaf, list(by_leaf), n=1, cutoff=0.6)
        aliases = {"learning_rate": "lr", "learning_rat": "lr", "group_size": "samples_per_prompt"}
        near = get_close_matches(leaf, list(aliases), n=1, cutoff=0.8)
        leaf = aliases[near[0]] if near else (names[0] if names else "")
        close = sorted(
            by_leaf.get(leaf, []), key=lambda known: not known.startswith(path.partition(".")[0])
        )
    if close:
        return f"did you mean {close[0]!r}?"
    section = path.rpartition(".")[0]
    sections = {known.rpartition(".")[0] for known in paths} - {""}
    near_section = get_close_matches(path, sorted(sections), n=1, cutoff=0.75)
    if near_section:
        return f"did you mean the section {near_section[0]!r}?"
    siblings = (
        [p.removeprefix(f"{section}.") for p in paths if p.startswith(f"{section}.")]
        if section
        else []
    )
    return f"known here: {', '.join(siblings)}" if siblings else "see docs/reference/settings.md"
