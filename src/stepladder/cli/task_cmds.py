"""`stepladder tasks`: which tasks there are, what one asks, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepladder.cli.output import USAGE, echo, print_json, print_table

if TYPE_CHECKING:
    from stepladder.core.seams import Task

_NAME = click.argument("name")
_SET = click.option(
    "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set one of the task's settings."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def tasks() -> None:
    """List, show and audit tasks."""


@tasks.command("list")
@_JSON
def list_tasks(as_json: bool) -> None:
    """List the tasks known by name, built in or installed."""
    from stepladder.tasks.registry import TASKS

    rows = [(name, _summary(TASKS.get(name))) for name in TASKS.names()]
    if as_json:
        print_json({"schema": 1, "tasks": [{"name": n, "summary": text} for n, text in rows]})
        return
    print_table("", ["task", "what it asks"], rows)
    echo("\nYour own: module:attribute in place of a name. `stepladder tasks show NAME` says more.")


@tasks.command()
@_NAME
@_SET
@click.option("--split", type=click.Choice(["train", "eval"]), default="train", show_default=True)
@click.option("--num", type=click.IntRange(min=1), default=3, show_default=True, help="Prompts.")
@_JSON
def show(name: str, sets: Sequence[str], split: str, num: int, as_json: bool) -> None:
    """Show a task's settings and some of its prompts with their oracle completions.

    NAME is a task's name or module:attribute. Holdout prompts are never shown.
    """
    from stepladder.core.prompt import Split
    from stepladder.tasks.registry import TASKS, build_task

    mapping = _mapping(name, sets)
    settings = _settings(TASKS.resolve(mapping, "task", Path.cwd()), mapping)
    task = build_task(mapping, folder=Path.cwd())
    prompts = [
        {
            "id": prompt.id,
            "prompt": [{"role": m.role, "content": m.content} for m in prompt.messages],
            "gold": prompt.gold,
            "oracle": task.oracle(prompt),
            "difficulty": prompt.difficulty,
        }
        for prompt in task.prompts(Split(split))[:num]
    ]
    sizes = {part.value: len(task.prompts(part)) for part in Split}
    longest = max(len(task.oracle(p)) for p in task.prompts(Split.TRAIN))
    facts = {"name": task.name, "outcome": task.outcome, "sizes": sizes, "longest_oracle": longest}
    if as_json:
        print_json({"schema": 1, **facts, "settings": settings, "split": split, "prompts": prompts})
        return
    counts = ", ".join(f"{part} {size}" for part, size in sizes.items())
    echo(f"{task.name}: judged by {task.outcome!r}; {counts} prompts")
    echo(f"longest oracle completion of train: {longest} characters")
    if settings:
        rows = [(s["setting"], str(s["value"]), s["meaning"]) for s in settings]
        print_table("", ["setting", "value", "meaning"], rows)
    for prompt in prompts:
        echo(f"\nprompt  {' | '.join(m['content'] for m in prompt['prompt'])}")
        echo(f"gold    {prompt['gold']}\noracle  {prompt['oracle']}")


@tasks.command()
@_NAME
@_SET
@click.option("--num", type=click.IntRange(min=2), default=200, show_default=True, help="Prompts.")
@_JSON
@click.pass_context
def audit(context: click.Context, name: str, sets: Sequence[str], num: int, as_json: bool) -> None:
    """Attack a task and its reward, and see that only right answers are paid.

    NAME is a task's name or module:attribute. Ends with 0 when every check passed, else with 2.
    """
    from stepladder.tasks.registry import build_task
    from stepladder.testing.tasks import audit_task, check_hash_seeds

    mapping = _mapping(name, sets)
    task = build_task(mapping, folder=Path.cwd())
    checks = [*audit_task(task, num), check_hash_seeds(mapping, Path.cwd())]
    failed = [check for check in checks if not check.passed]
    if as_json:
        print_json(_audit_document(task, checks))
    else:
        rows = [
            (
                "ok" if check.passed else "FAILED",
                check.name,
                "" if check.mean is None else f"{check.mean:.3f}",
                str(check.num or ""),
                str(check.num_skipped or ""),
                check.detail,
            )
            for check in checks
        ]
        print_table("", ["", "check", "mean", "scored", "right anyway", "found"], rows)
        verdict = (
            f"{len(failed)} of {len(checks)} checks failed" if failed else "every check passed"
        )
        echo(f"\n{task.name}: {verdict}")
    if failed:
        context.exit(USAGE)


def _audit_document(task: Task, checks: Sequence[Any]) -> Mapping[str, Any]:
    import dataclasses

    return {
        "schema": 1,
        "task": task.name,
        "outcome": task.outcome,
        "passed": all(check.passed for check in checks),
        "checks": [dataclasses.asdict(check) for check in checks],
    }


def _mapping(name: str, sets: Sequence[str]) -> dict[str, Any]:
    from stepladder.spec.base import with_leaf
    from stepladder.spec.load import parse_assignment

    mapping: dict[str, Any] = {"use" if ":" in name else "type": name}
    for assignment in sets:
        path, value = parse_assignment(assignment)
        mapping = with_leaf(mapping, path, value)
    return mapping


def _settings(factory: Any, mapping: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return setting, value and meaning of each leaf; empty for a task without a Spec."""
    import inspect

    from pydantic import BaseModel

    if not inspect.isclass(factory) or not issubclass(factory, BaseModel):
        return []
    rows: list[dict[str, Any]] = []
    for leaf, info in factory.model_fields.items():
        value = mapping.get(leaf, "required" if info.is_required() else info.get_default())
        value = list(value) if isinstance(value, tuple) else value
        shown = " ".join((info.description or "").split())
        rows.append(
            {"setting": leaf, "value": "unset" if value is None else value, "meaning": shown}
        )
    return rows


def _summary(factory: Any) -> str:
    lines = (factory.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""
