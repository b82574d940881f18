"""`plan` on one run's settings file or preset. Imports stand inside functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepladder.cli.output import echo, print_json, print_table
from stepladder.cli.plan_run_texts import text

if TYPE_CHECKING:
    from stepladder.spec.convert import Converted
    from stepladder.spec.load import Loaded
    from stepladder.spec.run import RunSpec
    from stepladder.study.run_plan import RunPlan

GIB = 2**30
UNNAMED = (
    "algorithm.critic",
    "algorithm.updates_per_batch",
    "algorithm.value_coef",
    "algorithm.value_clip",
    "optim.schedule",
    "optim.max_grad_norm",
    "kl.target",
    "kl.cap",
    "model.dtype",
)
"""Settings that change what a run does and that report A's layout has no key for."""
NUM_PROMPTS = 256
"""Prompts that the longest one is sought among."""


def is_run_file(path: Path) -> bool:
    """Return whether a settings file is one run's: by its top-level keys; a study's come first.

    Raises
        SpecError: the file cannot be read.
    """
    from stepladder.spec.convert import is_report_tree
    from stepladder.spec.load import find_preset, read_tree
    from stepladder.spec.run import RunSpec
    from stepladder.spec.study import StudySpec

    file = find_preset(path) or path
    if file.is_dir():
        return False
    tree = read_tree(file)
    studys = {*StudySpec.model_fields} - {*RunSpec.model_fields}
    runs = {*RunSpec.model_fields} - {*StudySpec.model_fields}
    return is_report_tree(tree) or bool(runs & {*tree} and not studys & {*tree})


def refuse_study_options(**given: object) -> None:
    """Refuse what only a study's plan can use.

    Raises
        PlanError: names the first such option.
    """
    from stepladder.core.errors import PlanError

    for name, value in given.items():
        if value is not None:
            what = "is for studies, and these are one run's settings"
            raise PlanError("SL0223", what, f"--{name}", "leave it out")


def show_run_plan(path: Path, sets: tuple[str, ...], lang: str, *, as_json: bool) -> int:
    """Print what one run would take; write nothing and start nothing."""
    from stepladder.spec.convert import convert_report, is_report_tree
    from stepladder.spec.load import find_preset, load_spec, read_tree
    from stepladder.spec.run import RunSpec
    from stepladder.study.run_plan import plan_run

    loaded = load_spec(RunSpec, path, sets)
    tree = read_tree(find_preset(path) or path)
    converted = convert_report(tree, str(path)) if is_report_tree(tree) else None
    planned = plan_run(loaded.spec, longest_prompt(loaded))
    if as_json:
        print_json(_document(loaded, converted, planned))
    else:
        _show(path, loaded, converted, planned, lang)
    return 0


def longest_prompt(loaded: Loaded[RunSpec]) -> int:
    """Return the characters of the task's longest prompt: its tokens are at most about as many."""
    from itertools import islice

    from stepladder.core.prompt import Split
    from stepladder.tasks.registry import build_task

    task = build_task(loaded.spec.task, "task", loaded.folder)
    lengths = [len(prompt.text) for prompt in islice(task.prompts(Split.TRAIN), NUM_PROMPTS)]
    return max(lengths, default=0)


def _document(
    loaded: Loaded[RunSpec], converted: Converted | None, planned: RunPlan
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "schema": 1,
        "run_id": loaded.spec.run_id,
        "settings": loaded.spec.leaves(),
        "provenance": dict(loaded.provenance),
        "converted": [
            {key: value for key, value in asdict(row).items() if key != "note_zh"}
            for row in (converted.rows if converted else ())
        ],
        **asdict(planned),
        "memory_bytes": planned.memory_bytes,
        "device_bytes": planned.device_bytes,
        "total_flops": planned.total_flops,
    }


def _show(
    path: Path, loaded: Loaded[RunSpec], converted: Converted | None, planned: RunPlan, lang: str
) -> None:
    run = loaded.spec
    echo(text("title", lang, name=run.name, settings=path))
    echo()
    if converted is not None:
        _show_conversion(converted, loaded, lang)
    _show_changed(loaded, lang, only_sets=converted is not None)
    _show_size(run, planned, lang)
    _show_memory(planned, lang)
    rows = [
        [text(p.name, lang), f"{p.flops:.3g}", f"{p.factor:g} x {p.parameters:,} x {p.tokens:,}"]
        for p in planned.flops
    ]
    rows.append([text("sum", lang), f"{planned.total_flops:.3g}", ""])
    print_table(text("flops", lang), _header(("part", "flops", "count"), lang), rows)
    echo(text("how", lang, computing=f"{planned.num_computing:,}"))
    if run.model.path.startswith("shape:"):
        echo(text("no_weights", lang))


def _show_conversion(converted: Converted, loaded: Loaded[RunSpec], lang: str) -> None:
    rows = [
        [
            row.theirs,
            _value(row.their_value),
            row.ours,
            _value(row.our_value),
            row.note_zh if lang == "zh" else row.note,
        ]
        for row in converted.rows
    ]
    header = _header(("theirs", "value", "ours", "value", "note"), lang)
    print_table(text("converted", lang), header, rows)
    leaves = loaded.spec.leaves()
    named = ", ".join(
        f"{leaf} = {_value(leaves[leaf])}"
        for leaf in UNNAMED
        if leaf in leaves and loaded.provenance[leaf] == "default"
    )
    echo(text("not_named", lang, settings=named))
    echo()


def _show_changed(loaded: Loaded[RunSpec], lang: str, *, only_sets: bool) -> None:
    from stepladder.spec.run import RunSpec

    defaults = RunSpec().leaves()
    rows = [
        [leaf, _value(defaults.get(leaf)), _value(value), loaded.provenance[leaf]]
        for leaf, value in loaded.spec.leaves().items()
        if loaded.provenance[leaf] != "default"
        and (leaf not in defaults or value != defaults[leaf])
        and (not only_sets or loaded.provenance[leaf] == "--set")
    ]
    if rows:
        header = _header(("ours", "default", "value", "from"), lang)
        print_table(text("changed", lang), header, rows)
        echo()
    elif not only_sets:
        echo(text("nothing_changed", lang))
        echo()


def _show_size(run: RunSpec, planned: RunPlan, lang: str) -> None:
    total, trained = f"{planned.num_parameters:,}", f"{planned.num_trained:,}"
    echo(text("parameters", lang, total=total, trained=trained))
    echo(
        text(
            "batch",
            lang,
            rollouts=f"{run.batch_size:,}",
            prompts=run.sampling.prompts_per_step,
            samples=run.sampling.samples_per_prompt,
            updates=planned.updates_per_step,
            steps=f"{run.budget.steps:,}",
        )
    )
    echo(
        text(
            "tokens",
            lang,
            written=f"{planned.trained_tokens:,}",
            seen=f"{planned.seen_tokens:,}",
            prompt=planned.prompt_tokens,
        )
    )
    echo()


def _show_memory(planned: RunPlan, lang: str) -> None:
    from stepladder.study.run_plan import FREE_SHARE

    rows = [[text(p.name, lang), _gib(p.num_bytes), p.formula] for p in planned.memory]
    rows.append([text("sum", lang), _gib(planned.memory_bytes), ""])
    rows.append(
        [
            text("device", lang, free=FREE_SHARE),
            _gib(planned.device_bytes),
            f"{text('sum', lang)} / {1 - FREE_SHARE:g}",
        ]
    )
    print_table(text("memory", lang), _header(("part", "bytes", "formula"), lang), rows)
    if not any(part.name in ("activations", "cache") for part in planned.memory):
        echo(text("no_activations", lang))
    echo()


def _header(keys: Sequence[str], lang: str) -> list[str]:
    return [text(f"col_{key}", lang) for key in keys]


def _gib(num_bytes: float) -> str:
    size = num_bytes / GIB
    return f"{size:.1f}" if size >= 1 else f"{size:.2g}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
