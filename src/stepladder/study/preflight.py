"""Preflight: everything that can be refused before a process starts or a file is written.

All faults are collected and raised together, one line each. Called by every verb that plans.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from stepladder.core.errors import LabError, PlanError
from stepladder.core.prompt import Split
from stepladder.core.seams import Task
from stepladder.rewards.registry import build_reward
from stepladder.spec.load import Loaded
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec
from stepladder.study.model_size import check_model, model_ratio, num_parameters
from stepladder.study.plan import PlanErrors, make_plan
from stepladder.study.shape import full_shape, plan_points
from stepladder.tasks.registry import build_task

BYTES_PER_PARAMETER = 16
"""float32 weights, two moments and the reference's share of a full-state checkpoint."""
BYTES_PER_RUN = 2_000_000
"""Metrics, evaluations and rollout dumps of a run of a few hundred steps."""


def preflight_study(loaded: Loaded[StudySpec], out: Path, *, free_bytes: int | None = None) -> None:
    """Refuse a study that could not be carried out.

    Raises
        PlanErrors: every fault found.
    """
    spec = loaded.spec
    checks: list[Callable[[], None]] = [
        *_base_conflicts(spec, loaded.provenance),
        *(_model_check(model, "axes.model") for model in spec.axes.model),
        *_task_and_reward(spec.base, "base.", loaded.folder),
    ]
    errors = collect_errors(checks)
    if not errors:
        errors = collect_errors(
            [
                lambda: _check_order(spec),
                lambda: _check_cells(loaded),
                lambda: check_disk(study_bytes(spec), out, free_bytes),
            ]
        )
    if errors:
        raise PlanErrors(errors)


def preflight_run(loaded: Loaded[RunSpec], out: Path, *, free_bytes: int | None = None) -> None:
    """Refuse a single run that could not be carried out.

    Raises
        PlanErrors: every fault found.
    """
    run = loaded.spec
    errors = collect_errors(
        [
            _model_check(run.model.path, "model.path"),
            *_task_and_reward(run, "", loaded.folder),
        ]
    )
    if not errors:
        wanted = run_bytes(run.model.path, run.checkpoint.keep)
        errors = collect_errors([lambda: check_disk(wanted, out, free_bytes)])
    if errors:
        raise PlanErrors(errors)


def collect_errors(checks: list[Callable[[], None]]) -> list[LabError]:
    """Run every check and return the faults, those that carry several taken apart."""
    found: list[LabError] = []
    for check in checks:
        try:
            check()
        except LabError as error:
            found.extend(getattr(error, "errors", (error,)))
    return found


def check_disk(wanted_bytes: int, out: Path, free_bytes: int | None = None) -> None:
    """Refuse when the disk of `out` has less than `wanted_bytes` free.

    Raises
        PlanError: with both figures.
    """
    if free_bytes is None:
        free_bytes = shutil.disk_usage(_existing(out)).free
    if free_bytes < wanted_bytes:
        raise PlanError(
            "SL0211",
            f"{free_bytes / 1e6:.0f} MB are free, about {wanted_bytes / 1e6:.0f} MB are needed",
            str(out),
            "free some space, or choose another --out",
        )


def study_bytes(spec: StudySpec) -> int:
    """Return the bytes that a study's folder is estimated to take at its fullest."""
    keep = spec.base.checkpoint.keep
    return sum(
        run_bytes(point.model, keep) * len(point.seeds)
        for point in plan_points(spec, full_shape(spec))
    )


def run_bytes(model: str, keep: int) -> int:
    """Return the bytes of one run: its checkpoints, one being written, and its records."""
    return BYTES_PER_RUN + (keep + 1) * BYTES_PER_PARAMETER * (num_parameters(model) or 0)


def check_splits(task: Task, run: RunSpec, where: str) -> None:
    """Refuse a task whose splits share prompts, or that has too few held-out ones.

    Raises
        PlanErrors: what overlaps and what is missing.
    """
    ids = {split: [prompt.id for prompt in task.prompts(split)] for split in Split}
    errors: list[LabError] = []
    train = set(ids[Split.TRAIN])
    for split in (Split.EVAL, Split.HOLDOUT):
        shared = train & set(ids[split])
        if shared:
            errors.append(
                PlanError(
                    "SL0212",
                    f"{len(shared)} prompts of the {split.value} split are also trained on:"
                    " the score would not be held out",
                    where,
                    f"remove them from one of the splits, first {sorted(shared)[0]}",
                )
            )
    wanted, there = run.eval.num_prompts, len(ids[Split(run.eval.split)])
    if there < wanted:
        errors.append(
            PlanError(
                "SL0213",
                f"eval.num_prompts is {wanted}, but the {run.eval.split} split has {there} prompts",
                where,
                f"set it to {there} or less" if there else "give the task held-out prompts",
            )
        )
    if len(train) < run.sampling.prompts_per_step:
        errors.append(
            PlanError(
                "SL0213",
                f"sampling.prompts_per_step is {run.sampling.prompts_per_step},"
                f" but the train split has {len(train)} prompts",
                where,
                "use more prompts or a smaller step",
            )
        )
    if errors:
        raise PlanErrors(errors)


def _task_and_reward(
    run: RunSpec, prefix: str, folder: Path | None
) -> Iterator[Callable[[], None]]:
    def check() -> None:
        task = build_task(run.task, where=f"{prefix}task", folder=folder)
        errors = collect_errors(
            [
                lambda: check_splits(task, run, f"{prefix}task"),
                lambda: _ignore(
                    build_reward(run.reward, task, where=f"{prefix}reward", folder=folder)
                ),
            ]
        )
        if errors:
            raise PlanErrors(errors)

    yield check


def _ignore(_value: object) -> None:
    return None


def _model_check(path: str, where: str) -> Callable[[], None]:
    return lambda: check_model(path, where)


def _check_cells(loaded: Loaded[StudySpec]) -> None:
    make_plan(loaded, created="preflight")


def _check_order(spec: StudySpec) -> None:
    ratios = [model_ratio(model, spec.axes.model[0]) for model in spec.axes.model]
    if any(later <= earlier for earlier, later in pairwise(ratios)):
        raise PlanError(
            "SL0214",
            f"sizes do not rise: {', '.join(f'{ratio:g}x' for ratio in ratios)}",
            "axes.model",
            "write the smallest first",
        )


def _base_conflicts(spec: StudySpec, provenance: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Yield checks that a base leaf set by hand is not silently replaced by an axis."""
    pairs: tuple[tuple[str, Any, str, Any], ...] = (
        ("base.model.path", spec.base.model.path, "axes.model", spec.axes.model[0]),
        (
            "base.sampling.samples_per_prompt",
            spec.base.sampling.samples_per_prompt,
            "axes.samples_per_prompt",
            spec.axes.samples_per_prompt[0],
        ),
    )
    for path, value, axis, first in pairs:
        if provenance.get(path, "default") != "default" and value != first:
            error = PlanError(
                "SL0215",
                f"is {value!r}, but the base point of {axis} is {first!r}",
                path,
                f"write {value!r} first in {axis}",
            )
            yield _raiser(error)


def _raiser(error: LabError) -> Callable[[], None]:
    def check() -> None:
        raise error

    return check


def _existing(path: Path) -> Path:
    path = path.resolve()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
