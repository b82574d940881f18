"""Conducting a study from settings to a result: warm up, measure, plan, run, collect, analyse.

The CLI's `rehearse` and `run` call `conduct`, then `result_of`; nothing here prints or draws. Once
plan.json is written it is used and never made anew, so a killed study goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from stepladder.core.errors import EnvironmentProblem, PlanError, StoreError
from stepladder.core.job import Job, JobKind, JobState, JobStatus
from stepladder.core.result import StudyResult
from stepladder.launch.base_policy import base_policy_folder, is_ready
from stepladder.spec.ladder import LADDER
from stepladder.spec.load import Loaded
from stepladder.spec.study import StudySpec
from stepladder.store import layout
from stepladder.store.jsonl import read_json
from stepladder.store.provenance import num_cores, provenance
from stepladder.store.study_store import StudyStore
from stepladder.study.cell import Plan, StepCost
from stepladder.study.collect import collect_cells, collect_findings
from stepladder.study.cost import cost_runs
from stepladder.study.plan import make_plan, require_same_study
from stepladder.study.plan_json import plan_from_json, plan_to_json
from stepladder.study.queue import Hands, QueueEnd, StudyFolder, run_jobs, run_plan

SETUP = "setup"
"""Folder of warm-up and cost jobs inside a study."""
PRESET = "rehearsal.toml"
SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """What conducting a study came to."""

    plan: Plan | None
    """None when it was interrupted before there was a plan."""
    end: QueueEnd


def preset_text() -> str:
    """Return the packaged rehearsal as TOML text."""
    file = resources.files("stepladder.spec") / "presets" / PRESET
    return file.read_text(encoding="utf-8")


def num_slots(spec: StudySpec) -> int:
    """Return how many cells run at once: as asked, else as many as the cores allow."""
    return spec.launch.slots or max(1, num_cores() // spec.launch.threads)


def read_plan(store: StudyStore) -> Plan | None:
    """Return the study folder's plan; None when there is none.

    Raises
        StoreError, PlanError: another format version, unreadable, or edited.
    """
    document = store.read_plan()
    return None if document is None else plan_from_json(document)


def require_plan(store: StudyStore) -> Plan:
    """Return the study folder's plan.

    Raises
        StoreError: there is none.
    """
    plan = read_plan(store)
    if plan is None:
        raise StoreError(
            "SL0217",
            "holds no plan",
            str(store.folder),
            "give a study folder, or begin with: stepladder rehearse",
        )
    return plan


def set_aside(folder: Path) -> Path | None:
    """Move a study folder to NAME.old-N for --fresh; return where, None when there was none.

    Raises
        StoreError: a process runs the study, or the folder is none of ours.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return None
    known = (layout.PLAN, layout.STUDY_TOML, layout.EVENTS, layout.RUN)
    if not any((folder / name).exists() for name in known):
        raise StoreError(
            "SL0218",
            "is not a study or run folder, so it is left alone",
            str(folder),
            "other --out",
        )
    if StudyStore(folder).is_running():
        raise StoreError("SL0219", "is being run", str(folder), "stepladder stop it first")
    number = 1
    while (target := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    folder.rename(target)
    return target


def conduct(
    loaded: Loaded[StudySpec],
    store: StudyStore,
    hands: Hands,
    *,
    toml_text: str,
    budget_s: float | None = None,
) -> Conducted:
    """Plan a study, or take up its plan, and run every cell that is not finished.

    Raises
        PlanError: the folder's plan was made for other settings, or a plan is impossible.
        StoreError: another process runs the study.
        EnvironmentProblem: a warm-up or cost job failed.
    """
    began = hands.clock()
    plan = read_plan(store)
    if plan is not None:
        require_same_study(plan.spec, loaded.spec)
    with store.lock():
        store.clear_stop()
        store.sweep()
        store.event(SESSION, planned=plan is not None)
        spec = loaded.spec
        end = warm_up(spec.axes.model, spec.base.task, loaded.folder, store, hands)
        if end.unfinished:
            return Conducted(plan=plan, end=end)
        if plan is None:
            costs: Mapping[str, StepCost] = {}
            if budget_s is not None:
                costs, end = measure_costs(loaded, store, hands)
                if end.unfinished:
                    return Conducted(plan=None, end=end)
            plan = make_plan(
                loaded,
                costs=costs,
                budget_s=budget_s,
                used_s=hands.clock() - began,
                num_slots=hands.num_slots,
                facts=plan_facts(loaded, hands.num_slots),
            )
            store.write_plan(plan_to_json(plan), toml_text)
            for trim in plan.trims:
                hands.progress.note(f"plan: {trim}")
        return Conducted(plan=plan, end=run_plan(plan, store, hands))


def plan_facts(loaded: Loaded[StudySpec], slots: int) -> dict[str, Any]:
    """Return the versions and the host at plan time, and where dotted-path plug-ins lie."""
    folder = loaded.folder
    return {
        **provenance(),
        "num_slots": slots,
        "plugin_folder": None if folder is None else str(folder.resolve()),
    }


def warm_up(
    models: Sequence[str],
    task: Mapping[str, Any],
    plugins: Path | None,
    store: StudyFolder,
    hands: Hands,
) -> QueueEnd:
    """Build the base policies of the ladder that the cache lacks, the largest first.

    Raises
        EnvironmentProblem: one could not be built.
    """
    missing = [
        model
        for model in models
        if model in LADDER and not is_ready(base_policy_folder(model, task, plugins))
    ]
    jobs = [
        Job(
            kind=JobKind.WARMUP,
            id=f"warmup-{model}",
            folder=store.folder / SETUP / f"warmup-{model}",
            payload={"size": model, "task": dict(task), "plugin_folder": _text(plugins)},
        )
        for model in sorted(missing, key=lambda name: -LADDER[name].num_parameters)
    ]
    if jobs:
        hands.progress.note(f"warming up {len(jobs)} base policies; they are kept for next time")
    return _setup(jobs, store, hands)


def measure_costs(
    loaded: Loaded[StudySpec], store: StudyStore, hands: Hands
) -> tuple[dict[str, StepCost], QueueEnd]:
    """Return the cost of every kind of run, measured with all slots busy.

    Raises
        EnvironmentProblem: a measurement failed.
    """
    runs = cost_runs(loaded.spec)
    folders = {
        kind: store.folder / SETUP / f"cost-{number}" for number, kind in enumerate(sorted(runs))
    }
    jobs = [
        Job(
            kind=JobKind.COST,
            id=f"cost-{kind}",
            folder=folders[kind],
            payload={
                "run": runs[kind].model_dump(mode="json"),
                "plugin_folder": _text(loaded.folder),
            },
            threads=loaded.spec.launch.threads,
        )
        for kind in runs
    ]
    hands.progress.note(f"measuring what a step costs here: {len(jobs)} kinds of run")
    end = _setup(jobs, store, hands)
    if end.unfinished:
        return {}, end
    return {kind: read_cost(folders[kind]) for kind in runs}, end


def read_cost(folder: Path) -> StepCost:
    """Return the measurement in a cost job's folder.

    Raises
        StoreError: none there, or not readable.
    """
    document = read_json(folder / layout.COST)
    try:
        return StepCost(**{name: document[name] for name in StepCost.__dataclass_fields__})
    except KeyError as error:
        raise StoreError("SL0402", f"lacks {error}", str(folder / layout.COST)) from error


def _setup(jobs: Sequence[Job], store: StudyFolder, hands: Hands) -> QueueEnd:
    end = run_jobs(jobs, store, hands, _settle_setup)
    for name, reason in end.failed.items():
        raise EnvironmentProblem(
            "SL0216",
            f"{name} failed: {reason}",
            str(store.folder / SETUP),
            "see stdout.log there; stepladder doctor checks the machine",
        )
    return end


def _settle_setup(_job: Job, status: JobStatus) -> tuple[str, str]:
    if status.state is JobState.DONE:
        return JobState.DONE.value, ""
    return JobState.FAILED.value, status.reason or f"exit code {status.exit_code}"


def _text(folder: Path | None) -> str | None:
    return None if folder is None else str(folder.resolve())


def result_of(plan: Plan, store: StudyStore) -> StudyResult:
    """Collect and analyse what the study folder holds."""
    from stepladder.study.analyse import analyse

    result = analyse(plan, collect_cells(plan, store), collect_findings(plan, store))
    return replace(result, facts={**result.facts, "wall_s": wall_seconds(store)})


def wall_seconds(store: StudyStore) -> float:
    """Return the seconds that processes spent on the study, over all sessions, by its events."""
    total, began, last = 0.0, None, 0.0
    for event in store.events():
        t = float(event.get("t", 0.0))
        if event.get("kind") == SESSION:
            total += 0.0 if began is None else last - began
            began = t
        last = t
    return round(total if began is None else total + last - began, 1)


def loaded_from_folder(store: StudyStore) -> Loaded[StudySpec]:
    """Return a study's settings from its folder's plan, for `run FOLDER`.

    Raises
        StoreError: there is no plan.
    """
    plan = require_plan(store)
    folder = plan.facts.get("plugin_folder")
    return Loaded(plan.spec, {}, Path(folder) if folder else None)


def refuse_budget_change(plan: Plan, budget_s: float | None) -> None:
    """Refuse a budget that is not the plan's: the plan is fixed.

    Raises
        PlanError: with both budgets.
    """
    if budget_s is not None and budget_s != plan.budget_s:
        kept = "none" if plan.budget_s is None else f"{plan.budget_s:g} s"
        raise PlanError(
            "SL0206",
            f"is {budget_s:g} s, but the plan was made with {kept}",
            "--budget",
            "leave it out to go on, or --fresh to plan anew",
        )
