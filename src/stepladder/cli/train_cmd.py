"""`train`: one run in one worker, scored before and after. Imports stand inside functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepladder.cli.output import (
    INTERRUPTED,
    NO_GO,
    OK,
    SOME_FAILED,
    clock,
    note,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from stepladder.spec.load import Loaded
    from stepladder.spec.run import RunSpec
    from stepladder.study.queue import QueueEnd


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder train\n"
    "  stepladder train --set optim.lr=1e-4 --set budget.steps=200 --out runs/slow\n"
    "  stepladder train run.toml --model models/SmolLM2-135M-Instruct\n"
    "\b\nExit code: 0 done, 4 stopped by its validation, 6 failed."
)
@click.argument("settings", type=click.Path(path_type=Path), required=False, metavar="[RUN.toml]")
@click.option("--model", help="ladder-x1, ladder-x2, ladder-x4 or a Hugging Face model folder.")
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change one setting.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/train"), show_default=True
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads [1 for the ladder, else all].")
@click.option("--fresh", is_flag=True, help="Move the old folder aside and begin anew.")
@click.option(
    "--reset-optimizer",
    is_flag=True,
    help="Go on without the optimiser's state; the run is marked for it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def train(  # noqa: PLR0913  (one option each)
    settings: Path | None,
    model: str | None,
    sets: tuple[str, ...],
    out: Path,
    threads: int | None,
    fresh: bool,
    reset_optimizer: bool,
    as_json: bool,
) -> int:
    """Train one policy and score it on held-out prompts before and after.

    Without a file the vetted settings are used. The same command goes on with a run that was
    interrupted; a finished one is shown and not repeated.
    """
    from stepladder.cli.study_cmds import require_training
    from stepladder.spec.load import load_spec
    from stepladder.spec.run import RunSpec
    from stepladder.study.preflight import preflight_run
    from stepladder.study.rehearse import set_aside

    given = (*sets, f"model.path={_quoted(model)}") if model else sets
    loaded = load_spec(RunSpec, settings, given)
    preflight_run(loaded, out)
    if not fresh:
        require_same_run(out, loaded.spec)
    if fresh or not _is_finished(out):
        require_training()
    if fresh and (moved := set_aside(out)):
        note(f"the old folder is now {moved}")
    end = (
        None if _is_finished(out) else _train(loaded, out, threads, reset_optimizer=reset_optimizer)
    )
    return _show(out, loaded.spec, end, as_json=as_json)


def require_same_run(out: Path, run: RunSpec) -> None:
    """Refuse to go on in a folder that holds another run: settings never change inside a run.

    Raises
        PlanErrors: every differing leaf.
    """
    from stepladder.core.errors import PlanError
    from stepladder.store.run_store import RunStore
    from stepladder.study.plan import PlanErrors, change_fix

    header = RunStore(out).header()
    if not header or header.get("run_id") == run.run_id:
        return
    before, after = header.get("settings", {}), run.leaves()
    errors = [
        PlanError(
            "SL0206",
            f"is {after.get(path)!r}, but the run in {out} has {before.get(path)!r}",
            path,
            change_fix(path),
        )
        for path in sorted({*before, *after} - {"name"})
        if before.get(path) != after.get(path)
    ]
    fallback = PlanError("SL0206", "holds another run", str(out), "another --out, or --fresh")
    raise PlanErrors(errors or [fallback])


def _quoted(model: str) -> str:
    """Return a TOML string, so that a folder named 7 stays a name."""
    import json

    return json.dumps(model)


def _is_finished(out: Path) -> bool:
    from stepladder.study.collect import FINISHED, read_run

    return read_run(out).get("state") in FINISHED


class _RunFolder:
    """A run's folder where a queue expects a study's; its events are the run's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def event(self, kind: str, **details: Any) -> None:
        """Leave the run's event file to its worker."""


def _train(
    loaded: Loaded[RunSpec], out: Path, threads: int | None, *, reset_optimizer: bool
) -> QueueEnd:
    from stepladder.cli.progress import TrainProgress
    from stepladder.core.job import Job, JobKind
    from stepladder.launch.local import LocalLauncher
    from stepladder.spec.ladder import LADDER
    from stepladder.store.provenance import num_cores
    from stepladder.study.guard import stop_file
    from stepladder.study.queue import Hands, run_jobs
    from stepladder.study.rehearse import warm_up

    run = loaded.spec
    threads = threads or (1 if run.model.path in LADDER else num_cores())
    job = Job(
        kind=JobKind.RUN,
        id=out.name,
        folder=out,
        payload={
            "run": run.model_dump(mode="json"),
            "provenance": dict(loaded.provenance),
            "plugin_folder": None if loaded.folder is None else str(loaded.folder.resolve()),
            "reset_optimizer": reset_optimizer,
        },
        threads=threads,
    )
    stop_file(out).unlink(missing_ok=True)
    launcher = LocalLauncher(threads)
    progress = TrainProgress(out, run.budget.steps)
    hands = Hands(launcher=launcher, num_slots=1, progress=progress)
    folder = _RunFolder(out)
    try:
        with hands.requests.listening():
            end = warm_up([run.model.path], run.task, loaded.folder, folder, hands)
            return end if end.unfinished else run_jobs([job], folder, hands, _settle)
    finally:
        launcher.close()


def _settle(_job: Any, status: Any) -> tuple[str, str]:
    return status.state.value, status.reason or ""


def _show(out: Path, run: RunSpec, end: QueueEnd | None, *, as_json: bool) -> int:
    from stepladder.study.collect import read_run

    if end is not None and end.unfinished:
        note("stopped; the same command goes on")
        return INTERRUPTED
    for reason in (end.failed if end else {}).values():
        note(f"error: SL0222 the run failed: {reason}")
        return SOME_FAILED
    header = read_run(out)
    found = run_summary(out, run, header)
    if as_json:
        print_json({"schema": 1, **found})
    else:
        print_table("", ("run", str(out)), _rows(found))
    return NO_GO if header.get("state") == "stopped" else OK


def run_summary(out: Path, run: RunSpec, header: dict[str, Any]) -> dict[str, Any]:
    """Return what a finished run came to, as JSON values."""
    from stepladder.store import layout
    from stepladder.store.jsonl import read_rows

    rows = read_rows(out / layout.METRICS).rows
    evals = sorted(read_rows(out / layout.EVALS).rows, key=lambda row: row["step"])
    scores = [(row["step"], row["m"]["eval/pass@1"]) for row in evals if "eval/pass@1" in row["m"]]
    trained = [score for step, score in scores if step > 0][-run.eval.window :]
    last = rows[-1]["m"] if rows else {}
    seconds = [row.get("sys", {}).get("time_step_s", 0.0) for row in rows]
    memory = [row.get("sys", {}).get("memory_bytes", 0) for row in rows]
    return {
        "folder": str(out),
        "state": header.get("state"),
        "reason": header.get("reason") or "",
        "model": run.model.path,
        "num_parameters": header.get("num_parameters"),
        "steps": rows[-1]["step"] if rows else 0,
        "score_before": scores[0][1] if scores and scores[0][0] == 0 else None,
        "score_after": sum(trained) / len(trained) if trained else None,
        "eval_prompts": len(evals[-1].get("items", {})) if evals else 0,
        "samples_per_eval_prompt": run.eval.samples_per_prompt,
        "kl_ref": last.get("kl_ref"),
        "entropy": last.get("entropy"),
        "seconds": round(sum(seconds), 1),
        "seconds_per_step": round(sum(seconds) / len(seconds), 3) if seconds else None,
        "memory_bytes": max(memory) if memory else None,
    }


def _rows(found: dict[str, Any]) -> list[list[str]]:
    before, after = found["score_before"], found["score_after"]
    count = f"n = {found['eval_prompts']} prompts x {found['samples_per_eval_prompt']}"
    score = "not measured"
    if before is not None and after is not None:
        score = f"{before:.3f} -> {after:.3f} ({after - before:+.3f}; {count})"
    rows = [
        ["state", f"{found['state']} {found['reason']}".strip()],
        ["model", f"{found['model']} ({found['num_parameters'] or 0:,} parameters)"],
        ["held-out pass@1", score],
        ["steps", f"{found['steps']} in {clock(found['seconds'])}"],
    ]
    if found["kl_ref"] is not None:
        rows.append(["KL to the start", f"{found['kl_ref']:.4f} nats/token"])
    if found["entropy"] is not None:
        rows.append(["entropy", f"{found['entropy']:.3f} nats/token"])
    if found["memory_bytes"]:
        rows.append(["peak memory", f"{found['memory_bytes'] / 1e6:.0f} MB"])
    return rows
