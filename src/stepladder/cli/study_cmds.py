"""Verbs that plan and run studies: `rehearse`, `plan`, `run`. Imports stand inside functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepladder.cli.output import (
    INTERRUPTED,
    SOME_FAILED,
    clock,
    echo,
    language,
    note,
    print_json,
    print_table,
)
from stepladder.cli.plan_run import is_run_file, refuse_study_options, show_run_plan
from stepladder.core.errors import PlanError

if TYPE_CHECKING:
    from stepladder.spec.load import Loaded
    from stepladder.spec.study import StudySpec
    from stepladder.study.cell import Plan
    from stepladder.study.rehearse import Conducted

REHEARSAL = Path("runs/rehearsal")
REHEARSAL_BUDGET = "6m"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What the command line says beside the study itself."""

    out: Path
    budget: str | None
    fresh: bool
    lang: str
    as_json: bool


def study_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `rehearse` and `run` share."""
    for option in reversed(
        (
            click.option("--slots", type=click.IntRange(min=1), help="Runs at once [cores]."),
            click.option(
                "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change one setting."
            ),
            click.option("--fresh", is_flag=True, help="Move the old folder aside and begin anew."),
            click.option("--lang", type=click.Choice(["en", "zh"]), help="Language of the report."),
            click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON."),
        )
    ):
        function = option(function)
    return function


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder rehearse\n"
    "  stepladder rehearse --budget 10m --out runs/longer\n"
    "  stepladder rehearse --set base.task.type=letters --out runs/letters\n"
    "\b\nExit code: 0 GO, 4 NO-GO, 5 not enough evidence, 6 some runs failed."
)
@click.option("--out", type=click.Path(path_type=Path), default=REHEARSAL, show_default=True)
@click.option("--budget", help=f"Time for the whole job, such as 90s, 6m, 1h [{REHEARSAL_BUDGET}].")
@study_options
@click.pass_context
def rehearse(
    ctx: click.Context, out: Path, slots: int | None, sets: tuple[str, ...], **given: Any
) -> int:
    """Climb a small ladder on this machine and say GO or NO-GO.

    Trains three tiny models with three group sizes, three lengths and three seeds, with and
    without the settings that should move along, and answers whether the recipe scales. Nothing
    is downloaded. The same command goes on with a rehearsal that was interrupted.
    """
    from stepladder.study.rehearse import preset_text

    changed = _with_slots(sets, slots)
    loaded = load_rehearsal(changed)
    options = _options(ctx, out, given)
    return _run_study(
        loaded, options, preset_text() if not changed else None, default_budget=REHEARSAL_BUDGET
    )


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder run study.toml\n"
    "  stepladder run study.toml --out runs/first --budget 1h\n"
    "  stepladder run runs/first            go on with a study\n"
    "\b\nExit code: 0 GO, 4 NO-GO, 5 not enough evidence, 6 some runs failed."
)
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Study folder [runs/NAME].")
@click.option("--budget", help="Time for the whole job, such as 90s, 6m, 1h; trims the plan.")
@study_options
@click.pass_context
def run(
    ctx: click.Context,
    study: Path | None,
    out: Path | None,
    slots: int | None,
    sets: tuple[str, ...],
    **given: Any,
) -> int:
    """Run a study, or go on with one, to its verdict.

    STUDY is a settings file, or a study folder to go on with. Finished runs are never repeated.
    Ctrl-C once lets the running ones end, twice stops them too.
    """
    loaded, folder, text = open_study(study, out, _with_slots(sets, slots))
    return _run_study(loaded, _options(ctx, folder, given), text)


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder plan                      the rehearsal\n"
    "  stepladder plan run.toml             one run: memory, tokens, operations\n"
    "  stepladder plan report-a-medium      a preset of report A\n"
    "  stepladder plan study.toml --set axes.samples_per_prompt=[8,16,32]\n"
    "  stepladder plan runs/rehearsal --json"
)
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Folder it would run in [runs/NAME].")
@click.option("--budget", help="Trim to this time; needs costs that a run in --out has measured.")
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change one setting.")
@click.option("--slots", type=click.IntRange(min=1), help="Runs at once [cores].")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.pass_context
def plan(
    ctx: click.Context,
    study: Path | None,
    out: Path | None,
    budget: str | None,
    sets: tuple[str, ...],
    slots: int | None,
    as_json: bool,
) -> int:
    """Show what a study, or one run, would take; write nothing and start nothing.

    A study: every run, the settings that move along with each axis and, where costs were measured,
    the time. A run: memory, tokens, operations. STUDY is a settings file of either, a study folder
    or a preset's name; without it the rehearsal.
    """
    if study is not None and is_run_file(study):
        refuse_study_options(out=out, budget=budget, slots=slots)
        lang = language((ctx.obj or {}).get("lang"))
        return show_run_plan(study, sets, lang, as_json=as_json)
    from stepladder.store.study_store import StudyStore
    from stepladder.study.cost import parse_budget
    from stepladder.study.plan import make_plan
    from stepladder.study.plan_json import plan_to_json
    from stepladder.study.preflight import preflight_study
    from stepladder.study.rehearse import num_slots, read_plan

    changed = _with_slots(sets, slots)
    if study is None and not (REHEARSAL / "plan.json").is_file():
        loaded, folder = load_rehearsal(changed), out or REHEARSAL
    else:
        loaded, folder, _ = open_study(study, out, changed)
    preflight_study(loaded, folder)
    kept = read_plan(StudyStore(folder))
    budget_s = parse_budget(budget) if budget else None
    costs = dict(kept.costs) if kept else {}
    if budget_s is not None and not costs:
        raise PlanError(
            "SL0205",
            "costs are not known before a run has measured them, and plan starts nothing",
            "--budget",
            "leave it out here and give it to `stepladder run`",
        )
    made = (
        kept
        if kept and budget_s is None and kept.spec == loaded.spec
        else make_plan(loaded, costs=costs, budget_s=budget_s, num_slots=num_slots(loaded.spec))
    )
    if as_json:
        print_json(plan_to_json(made))
    else:
        _show_plan(made, num_slots(loaded.spec))
    return 0


def load_rehearsal(sets: tuple[str, ...]) -> Loaded[StudySpec]:
    """Return the packaged rehearsal with settings changed."""
    from importlib import resources

    from stepladder.spec.load import load_spec
    from stepladder.spec.study import StudySpec
    from stepladder.study.rehearse import PRESET

    preset = resources.files("stepladder.spec") / "presets" / PRESET
    with resources.as_file(preset) as path:
        return replace(load_spec(StudySpec, path, sets), folder=None)


def open_study(
    study: Path | None, out: Path | None, sets: tuple[str, ...]
) -> tuple[Loaded[StudySpec], Path, str | None]:
    """Return a study's settings, its folder, and the text that the person wrote.

    Raises
        PlanError: neither a file nor a study folder, or settings changed inside a study folder.
    """
    from stepladder.spec.load import load_spec
    from stepladder.spec.study import StudySpec
    from stepladder.store.study_store import StudyStore
    from stepladder.study.rehearse import loaded_from_folder

    where = study or find_study()
    if where.is_dir():
        if out is not None and out.resolve() != where.resolve():
            raise PlanError(
                "SL0221", "a study folder is run where it is", "--out", "give its study.toml"
            )
        loaded = loaded_from_folder(StudyStore(where))
        if sets:
            loaded = _changed(loaded, sets)
        return loaded, where, None
    loaded = load_spec(StudySpec, where, sets)
    folder = out or Path("runs") / _folder_name(loaded.spec.name, where)
    text = where.read_text(encoding="utf-8") if not sets else None
    return loaded, folder, text


def find_study(study: Path | None = None) -> Path:
    """Return the study folder that is meant: the one named, else the rehearsal.

    Raises
        PlanError: there is none; says how to begin.
    """
    if study is not None:
        return study
    if (REHEARSAL / "plan.json").is_file():
        return REHEARSAL
    raise PlanError(
        "SL0220",
        "no study is named and there is none in runs/rehearsal",
        fix="begin with: stepladder rehearse",
    )


def _changed(loaded: Loaded[StudySpec], sets: tuple[str, ...]) -> Loaded[StudySpec]:
    from pydantic import ValidationError

    from stepladder.spec.base import with_leaf
    from stepladder.spec.explain import explain
    from stepladder.spec.load import parse_assignment
    from stepladder.spec.study import StudySpec

    tree: dict[str, Any] = loaded.spec.model_dump(mode="json")
    for assignment in sets:
        path, value = parse_assignment(assignment)
        tree = with_leaf(tree, path, value)
    try:
        return replace(loaded, spec=StudySpec.model_validate(tree))
    except ValidationError as error:
        raise explain(error, StudySpec, "--set") from error


def _folder_name(name: str, file: Path) -> str:
    plain = name if name != "study" else file.stem
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in plain)


def _with_slots(sets: tuple[str, ...], slots: int | None) -> tuple[str, ...]:
    return (*sets, f"launch.slots={slots}") if slots else sets


def _options(ctx: click.Context, out: Path, given: dict[str, Any]) -> StudyOptions:
    asked = given["lang"] or (ctx.obj or {}).get("lang")
    return StudyOptions(
        out=out,
        budget=given["budget"],
        fresh=given["fresh"],
        lang=language(asked),
        as_json=given["as_json"],
    )


def _run_study(
    loaded: Loaded[StudySpec],
    options: StudyOptions,
    toml_text: str | None,
    default_budget: str | None = None,
) -> int:
    from stepladder.store.study_store import StudyStore
    from stepladder.study.cost import parse_budget
    from stepladder.study.plan import require_same_study
    from stepladder.study.plan_json import to_toml
    from stepladder.study.preflight import preflight_study
    from stepladder.study.rehearse import read_plan, refuse_budget_change, set_aside

    store = StudyStore(options.out)
    asked_s = parse_budget(options.budget) if options.budget else None
    preflight_study(loaded, options.out)
    kept = None if options.fresh else read_plan(store)
    if kept is not None:
        require_same_study(kept.spec, loaded.spec)
        refuse_budget_change(kept, asked_s)
    require_training()
    if options.fresh and (moved := set_aside(options.out)):
        note(f"the old folder is now {moved}")
    budget_s = asked_s or (parse_budget(default_budget) if default_budget else None)
    text = toml_text or to_toml(loaded.spec.model_dump(mode="json"))
    conducted = _conduct(loaded, store, text, budget_s)
    if conducted.plan is None or conducted.end.unfinished:
        note(f"stopped with {conducted.end.unfinished} runs to do; the same command goes on")
        return INTERRUPTED
    from stepladder.cli.result_cmds import finish_study

    code = finish_study(conducted.plan, store, options.lang, as_json=options.as_json)
    for name, reason in conducted.end.failed.items():
        note(f"failed: {name}: {reason}")
    return SOME_FAILED if conducted.end.failed else code


def _conduct(
    loaded: Loaded[StudySpec], store: Any, toml_text: str, budget_s: float | None
) -> Conducted:
    from stepladder.cli.progress import make_progress
    from stepladder.launch.local import LocalLauncher
    from stepladder.study.queue import Hands
    from stepladder.study.rehearse import conduct, num_slots

    launcher = LocalLauncher(loaded.spec.launch.threads)
    progress = make_progress()
    hands = Hands(launcher=launcher, num_slots=num_slots(loaded.spec), progress=progress)
    try:
        with hands.requests.listening():
            return conduct(loaded, store, hands, toml_text=toml_text, budget_s=budget_s)
    finally:
        progress.close()
        launcher.close()


def require_training() -> None:
    """Refuse to start workers where torch is not installed, without importing it.

    Raises
        EnvironmentProblem: with the pip line.
    """
    from importlib.util import find_spec

    from stepladder.core.errors import missing_extra

    for package in ("torch", "safetensors", "tokenizers"):
        if find_spec(package) is None:
            raise missing_extra(package, "train")


def _show_plan(made: Plan, slots: int) -> None:
    from stepladder.study.cost import list_schedule

    runs: dict[tuple[str, str], list[Any]] = {}
    for cell in made.cells:
        runs.setdefault((cell.id.rsplit("-s", 1)[0], cell.arm), []).append(cell)
    rows: list[list[str]] = []
    for (stem, arm), cells in runs.items():
        spec, seconds = cells[0].run, cells[0].estimated_s
        rows.append(
            [
                stem.removesuffix(f"-{arm}"),
                arm,
                " ".join(str(cell.seed) for cell in cells),
                str(spec.budget.steps),
                f"{spec.sampling.prompts_per_step}x{spec.sampling.samples_per_prompt}",
                f"{spec.optim.lr:.3g}",
                f"{spec.kl.coef:.3g}",
                f"{spec.entropy.coef:.3g}",
                clock(seconds) if seconds is not None else "?",
            ]
        )
    header = ("point", "arm", "seeds", "steps", "batch", "lr", "kl", "entropy", "a run")
    print_table(f"study {made.spec.name}: {len(made.cells)} runs", header, rows)
    echo()
    moved = [
        [c.cell_kind, c.path, f"{c.before:.3g}", f"{c.after:.3g}", c.rule, c.evidence]
        for cells in runs.values()
        for c in cells[0].changes
    ]
    if moved:
        header = ("where", "setting", "before", "after", "rule", "evidence")
        print_table("settings that move along (the control keeps them)", header, moved)
        echo()
    known = [cell.estimated_s for cell in made.cells if cell.estimated_s is not None]
    if len(known) == len(made.cells):
        echo(f"about {clock(list_schedule(known, slots))} at {slots} slots")
    else:
        echo("time: not known before a run with --budget has measured costs here")
    for trim in made.trims:
        echo(f"trimmed: {trim}")
