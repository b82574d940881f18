"""Read the settings of report A (sections model, rl, rollout, train) as ours, key by key."""

# ruff: noqa: RUF001  (Chinese punctuation is meant)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, cast

from stepladder.core.errors import SpecError
from stepladder.spec.base import flatten, with_leaf
from stepladder.spec.explain import SpecErrors
from stepladder.spec.model_shape import planning_shape, shape_name

REPORT_SECTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "model": ("hidden_size", "num_layers", "num_heads"),
        "rl": ("algorithm", "clip_ratio", "kl_coef_init", "entropy_coef", "gamma", "gae_lambda"),
        "rollout": ("num_envs", "rollout_steps", "batch_size"),
        "train": ("lr", "warmup_steps", "total_steps"),
    }
)
"""Sections and keys of report A's configuration."""
_MARKS = frozenset({"rl", "rollout", "train"})
_WHOLE = frozenset({*REPORT_SECTIONS["model"], *REPORT_SECTIONS["rollout"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """What one foreign setting became; several rows where it became several."""

    theirs: str
    their_value: Any
    ours: str
    our_value: Any
    note: str = ""
    note_zh: str = ""


@dataclass(frozen=True, slots=True)
class Converted:
    """Our settings and how each came about."""

    tree: dict[str, Any]
    rows: tuple[Mapped, ...]


def is_report_tree(tree: Mapping[str, Any]) -> bool:
    """Return whether settings are laid out as report A's: two of its own sections are enough."""
    return len(_MARKS & {name for name, value in tree.items() if isinstance(value, Mapping)}) >= 2


def convert_report(tree: Mapping[str, Any], source: str) -> Converted:
    """Return report A's settings as ours.

    Raises
        SpecErrors: unknown keys, sizes that are no whole numbers, batches that do not divide.
    """
    flat = flatten(tree)
    errors = [_unknown(path, source) for path in flat if path not in _known()]
    errors += [
        SpecError("SL0102", f"{value!r} is refused: it must be a whole number above 0", where)
        for path, value in flat.items()
        if path in _known() and path.rpartition(".")[2] in _WHOLE
        if type(value) is not int or value < 1
        for where in (f"{source}: {path}",)
    ]
    errors += [] if errors else _contradictions(flat, source)
    if errors:
        raise SpecErrors(errors)
    rows = [row for rule in (_model, _algorithm, _rollout, _train) for row in rule(flat)]
    ours: dict[str, Any] = {}
    for row in rows:
        ours = with_leaf(ours, row.ours, row.our_value)
    return Converted(ours, tuple(rows))


def _known() -> dict[str, None]:
    return {f"{section}.{key}": None for section, keys in REPORT_SECTIONS.items() for key in keys}


def _unknown(path: str, source: str) -> SpecError:
    known = list(_known())
    close = get_close_matches(path, known, n=1, cutoff=0.75)
    if not close:
        by_key = {name.rpartition(".")[2]: name for name in known}
        near = get_close_matches(path.rpartition(".")[2], list(by_key), n=1, cutoff=0.6)
        close = [by_key[name] for name in near]
    section = path.partition(".")[0]
    listed = ", ".join(REPORT_SECTIONS.get(section, REPORT_SECTIONS))
    fix = f"did you mean {close[0]!r}?" if close else f"known here: {listed}"
    return SpecError("SL0101", "unknown setting of report A's layout", f"{source}: {path}", fix)


def _contradictions(flat: Mapping[str, Any], source: str) -> list[SpecError]:
    found: list[SpecError] = []
    sizes = [f"model.{key}" for key in REPORT_SECTIONS["model"]]
    given = [path for path in sizes if path in flat]
    found += [
        SpecError("SL0102", "is required", f"{source}: {path}", "set it: a shape needs all three")
        for path in sizes
        if given and path not in flat
    ]
    if len(given) == len(sizes) and flat[sizes[0]] % flat[sizes[2]]:
        found.append(
            SpecError(
                "SL0103",
                f"is {flat[sizes[2]]}, which does not divide hidden_size {flat[sizes[0]]}",
                f"{source}: {sizes[2]}",
                "choose a divisor",
            )
        )
    batch, length = flat.get("rollout.batch_size"), flat.get("rollout.rollout_steps")
    if batch is not None and (length is None or batch % length):
        what = f"is {batch} transitions, which are no whole number of rollouts of {length} steps"
        fix = f"use a multiple of {length}" if length else "set rollout.rollout_steps"
        found.append(SpecError("SL0103", what, f"{source}: rollout.batch_size", fix))
    return found


def _model(flat: Mapping[str, Any]) -> list[Mapped]:
    keys = [f"model.{key}" for key in REPORT_SECTIONS["model"]]
    if keys[0] not in flat:
        return []
    sizes = [cast("int", flat[key]) for key in keys]
    shape = planning_shape(*sizes)
    name = shape_name(*sizes)
    note = (
        f"a shape to plan with, no weights; vocabulary {shape.vocabulary_size:,}, intermediate"
        f" {shape.intermediate_size:,} (8/3 of the width), untied embedding"
    )
    note_zh = (
        f"仅供规划的形状，没有权重；词表 {shape.vocabulary_size:,}，中间层"
        f" {shape.intermediate_size:,}（宽度的 8/3），输入输出嵌入不共享"
    )
    return [
        Mapped(
            theirs=key,
            their_value=flat[key],
            ours="model.path",
            our_value=name,
            note=note if key == keys[0] else "",
            note_zh=note_zh if key == keys[0] else "",
        )
        for key in keys
    ]


def _algorithm(flat: Mapping[str, Any]) -> list[Mapped]:
    rows = _copied(
        flat,
        ("rl.algorithm", "algorithm.type", "", ""),
        (
            "rl.clip_ratio",
            "algorithm.clip_low",
            "one distance on both sides of 1",
            "1 两侧同一距离",
        ),
        ("rl.clip_ratio", "algorithm.clip_high", "", ""),
        (
            "rl.kl_coef_init",
            "kl.coef",
            "the start of a coefficient that is adapted",
            "自适应系数的初值",
        ),
    )
    if "rl.kl_coef_init" in flat:
        rows.append(
            Mapped(
                theirs="rl.kl_coef_init",
                their_value=flat["rl.kl_coef_init"],
                ours="kl.controller",
                our_value="adaptive",
                note="'init' says that it moves; its target is our default, the report names none",
                note_zh="init 表示系数会变化；目标值取本项目默认，报告未给出",
            )
        )
    return rows + _copied(
        flat,
        ("rl.entropy_coef", "entropy.coef", "", ""),
        (
            "rl.gamma",
            "algorithm.gamma",
            "a step of the environment is a token here",
            "环境的一步即一个 token",
        ),
        ("rl.gae_lambda", "algorithm.gae_lambda", "", ""),
    )


def _rollout(flat: Mapping[str, Any]) -> list[Mapped]:
    rows = _copied(
        flat,
        (
            "rollout.num_envs",
            "sampling.prompts_per_step",
            "an environment is a prompt",
            "一个环境即一个提示",
        ),
    )
    if rows:
        envs = flat["rollout.num_envs"]
        rows.append(
            Mapped(
                theirs="rollout.num_envs",
                their_value=envs,
                ours="sampling.samples_per_prompt",
                our_value=1,
                note="one trajectory an environment; the critic needs no group",
                note_zh="每个环境一条轨迹；有价值网络，不需要组",
            )
        )
    rows += _copied(
        flat,
        (
            "rollout.rollout_steps",
            "sampling.max_new_tokens",
            "a step is a token",
            "一步即一个 token",
        ),
    )
    batch = flat.get("rollout.batch_size")
    if batch is None:
        return rows
    length = flat["rollout.rollout_steps"]
    mini = batch // length
    note = f"{batch:,} transitions / {length} steps = {mini} rollouts an update"
    note_zh = f"{batch:,} 个转移 / {length} 步 = 每次更新 {mini} 条轨迹"
    envs = flat.get("rollout.num_envs")
    if envs and not envs % mini:
        note_zh += f"；每批 {envs // mini} 次更新"
        note += f"; {envs // mini} updates a batch"
    return [
        *rows,
        Mapped(
            theirs="rollout.batch_size",
            their_value=batch,
            ours="optim.minibatch_size",
            our_value=mini,
            note=note,
            note_zh=note_zh,
        ),
    ]


def _train(flat: Mapping[str, Any]) -> list[Mapped]:
    return _copied(
        flat,
        ("train.lr", "optim.lr", "", ""),
        (
            "train.warmup_steps",
            "optim.warmup_steps",
            "steps are batches of rollouts, not updates",
            "一步是一批轨迹，不是一次更新",
        ),
        ("train.total_steps", "budget.steps", "batches of rollouts", "轨迹的批数"),
    )


def _copied(flat: Mapping[str, Any], *names: tuple[str, str, str, str]) -> list[Mapped]:
    return [
        Mapped(
            theirs=theirs,
            their_value=flat[theirs],
            ours=ours,
            our_value=flat[theirs],
            note=note,
            note_zh=note_zh,
        )
        for theirs, ours, note, note_zh in names
        if theirs in flat
    ]
