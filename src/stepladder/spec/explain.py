"""Turn pydantic's errors into ours: key, value, rule, suggestion, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

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
        path, chosen = _written_path(item["loc"], model)
        lines.extend(_one(item, path, _Known(model, chosen), source))
    return SpecErrors(lines)


@dataclass(frozen=True, slots=True)
class _Known:
    """A spec class, and which member of a tagged union the person chose on the way to an error."""

    model: type[BaseModel]
    chosen: Mapping[str, type[BaseModel]]


def _written_path(
    loc: Sequence[int | str], model: type[BaseModel]
) -> tuple[str, dict[str, type[BaseModel]]]:
    """Return the path as a person writes it, without pydantic's union tags, and the members chosen.

    An error inside a tagged union stands at (section, tag, key); nobody writes the tag there.
    """
    parts: list[str] = []
    chosen: dict[str, type[BaseModel]] = {}
    open_union: Mapping[str, type[BaseModel]] = {}
    here: type[BaseModel] | None = model
    for part in map(str, loc):
        if part in open_union:
            here = chosen[".".join(parts)] = open_union[part]
            open_union = {}
            continue
        parts.append(part)
        field = here.model_fields.get(part) if here else None
        members = members_of(field.annotation) if field else ()
        open_union = tagged(members)
        here = members[0] if len(members) == 1 else None
    return ".".join(parts), chosen


def _one(item: Any, path: str, known: _Known, source: str) -> Iterable[SpecError]:
    where = f"{source}: {path}" if path else source
    kind = str(item["type"])
    if kind == "extra_forbidden":
        what, fix = _unknown(path, known)
        yield SpecError("SL0101", what, where, fix)
    elif kind == "missing":
        yield SpecError("SL0102", "is required", where, "set it")
    elif kind.startswith("union_tag"):
        tag = str(item["ctx"].get("discriminator", "'type'")).strip("'")
        yield _bad_tag(item, f"{where}.{tag}")
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


def _bad_tag(item: Any, where: str) -> SpecError:
    expected = [
        name.strip().strip("'") for name in str(item["ctx"].get("expected_tags")).split(",")
    ]
    tag = str(item["ctx"].get("tag", ""))
    close = get_close_matches(tag.lower().replace("-", "_"), expected, n=1, cutoff=0.6)
    known = f"known are {', '.join(expected)}"
    fix = f"did you mean {close[0]!r}? {known}" if close else known
    return SpecError("SL0102", f"{tag!r} is not known" if tag else "is required", where, fix)


def _unknown(path: str, known: _Known) -> tuple[str, str]:
    """Say that a setting is not known, or that it belongs to another member of the union."""
    section, _, leaf = path.rpartition(".")
    member = known.chosen.get(section)
    if member is None:
        return "unknown setting", _suggest(path, known)
    field = _field_at(known.model, section)
    owners = [
        tag
        for tag, other in tagged(members_of(field.annotation) if field else ()).items()
        if leaf in other.model_fields
    ]
    if not owners:
        return "unknown setting", _suggest(path, known)
    name = str(member.model_fields["type"].default)
    fix = f"remove it, or set {section}.type to one that has it: {', '.join(owners)}"
    return f"is not a setting of {name!r}", fix


def _field_at(model: type[BaseModel], path: str) -> FieldInfo | None:
    head, _, rest = path.partition(".")
    field = model.model_fields.get(head)
    if field is None or not rest:
        return field
    members = members_of(field.annotation)
    return _field_at(members[0], rest) if len(members) == 1 else None


def _fix(kind: str, value: object) -> str:
    if kind in ("float_type", "int_type"):
        number = "a plain number, such as 1e-4" if kind == "float_type" else "a whole number"
        return f"write {number}, without quotes" if isinstance(value, str) else f"write {number}"
    if kind == "finite_number":
        return "NaN and infinity cannot be used"
    if kind.startswith(("greater", "less")):
        return "choose a value inside the limit"
    if kind.startswith("model_"):
        return "write it as a table of settings"
    return "" if value is None else "see docs/reference/settings.md"


def known_paths(
    model: type[BaseModel],
    prefix: str = "",
    chosen: Mapping[str, type[BaseModel]] | None = None,
) -> list[str]:
    """Return the dotted path of every leaf of a spec class, each once.

    A tagged union gives the leaves of all its members, or of the one that `chosen` names.
    """
    paths: dict[str, None] = {}
    for name, info in model.model_fields.items():
        path = prefix + name
        members = members_of(info.annotation)
        if chosen and path in chosen:
            members = (chosen[path],)
        if not members:
            paths[path] = None
        for member in members:
            paths.update(dict.fromkeys(known_paths(member, f"{path}.", chosen)))
    return list(paths)


def members_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the spec classes that a field may hold: none for a leaf, several for a tagged union."""
    candidates = (annotation, *get_args(annotation))
    return tuple(
        candidate
        for candidate in candidates
        if isinstance(candidate, type) and issubclass(candidate, BaseModel)
    )


def tagged(members: Sequence[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """Return tag -> member of a union; empty for a single class."""
    if len(members) < 2:
        return {}
    return {str(member.model_fields["type"].default): member for member in members}


def _suggest(path: str, known_here: _Known) -> str:
    paths = known_paths(known_here.model, chosen=known_here.chosen)
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
