"""Verbs that read results: `curves`, `report`; and the end of a study, shared with `run`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepladder.cli.output import (
    NO_GO,
    NOT_ENOUGH,
    OK,
    echo,
    language,
    note,
    print_json,
    print_table,
)
from stepladder.core.result import Answer, Curve, CurvePoint, StudyResult

if TYPE_CHECKING:
    from stepladder.store.study_store import StudyStore
    from stepladder.study.cell import Plan

EXIT_CODE = {Answer.GO: OK, Answer.NO_GO: NO_GO, Answer.NOT_ENOUGH: NOT_ENOUGH}
AXIS_CHOICES = ("model", "samples_per_prompt", "steps")


def open_result(study: Path | None) -> tuple[StudyStore, StudyResult]:
    """Return a study's store and its analysis as of now.

    Raises
        StoreError: no plan there.
    """
    from stepladder.cli.study_cmds import find_study
    from stepladder.store.study_store import StudyStore
    from stepladder.study.rehearse import require_plan, result_of

    store = StudyStore(find_study(study))
    return store, result_of(require_plan(store), store)


def finish_study(plan: Plan, store: StudyStore, lang: str, *, as_json: bool) -> int:
    """Analyse a study, write its report, print its verdict and return the verdict's exit code."""
    from stepladder.study.rehearse import result_of

    result = result_of(plan, store)
    paths = write_reports(result, store.report_folder, lang)
    show(result, lang, as_json=as_json)
    note(f"report: {paths[0]}")
    return EXIT_CODE[result.verdict.answer]


def write_reports(result: StudyResult, folder: Path, lang: str) -> list[Path]:
    """Write report.html, report.md and verdict.json; return their paths."""
    from stepladder.report.html import write_html
    from stepladder.report.markdown import write_markdown
    from stepladder.report.model import build_report
    from stepladder.report.verdict_json import verdict_document
    from stepladder.store.jsonl import write_json

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("report.html", "report.md", "verdict.json")]
    model = build_report(result, lang)
    write_html(model, paths[0])
    write_markdown(model, paths[1])
    write_json(paths[2], verdict_document(result))
    return paths


def show(result: StudyResult, lang: str, *, as_json: bool) -> None:
    """Print a verdict to stdout."""
    if as_json:
        from stepladder.report.verdict_json import verdict_document

        print_json(verdict_document(result))
        return
    from rich.console import Console

    from stepladder.report.model import build_report
    from stepladder.report.terminal import render

    render(build_report(result, lang), Console(highlight=False))


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder report\n"
    "  stepladder report runs/first --lang zh -o report.zh.html"
)
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--lang", type=click.Choice(["en", "zh"]), help="Language.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write only this HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.pass_context
def report(
    ctx: click.Context, study: Path | None, lang: str | None, output: Path | None, as_json: bool
) -> int:
    """Write and print the report of a study, finished or not.

    STUDY is a study folder; without it the rehearsal in runs/rehearsal.
    """
    store, result = open_result(study)
    chosen = language(lang or (ctx.obj or {}).get("lang"))
    if output is not None:
        from stepladder.report.html import write_html
        from stepladder.report.model import build_report

        write_html(build_report(result, chosen), output)
        note(f"report: {output}")
    else:
        paths = write_reports(result, store.report_folder, chosen)
        note(f"report: {paths[0]}")
    show(result, chosen, as_json=as_json)
    return OK


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder curves\n"
    "  stepladder curves runs/first --axis model\n"
    "  stepladder curves --csv > curves.csv"
)
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--axis", type=click.Choice(AXIS_CHOICES), help="Only this axis.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def curves(study: Path | None, axis: str | None, as_csv: bool, as_json: bool) -> int:
    """Print the response curves of a study: score against each axis, with intervals over seeds.

    STUDY is a study folder; without it the rehearsal in runs/rehearsal.
    """
    _, result = open_result(study)
    found = [curve for curve in result.curves if axis in (None, curve.axis)]
    if as_json:
        print_json({"schema": 1, "study": result.study, "curves": [_document(c) for c in found]})
    elif as_csv:
        echo(_csv(found).rstrip("\n"))
    else:
        for curve in found:
            rows = [_row(point) for point in curve.points]
            title = f"{curve.axis}, {curve.arm}: {curve.metric}"
            print_table(title, ("point", "ratio", "score", "interval", "gain", "n"), rows)
            echo()
    return OK


def _row(point: CurvePoint) -> list[str]:
    score = point.score
    known = score.low is not None and score.high is not None
    stopped = f" ({point.num_stopped} stopped)" if point.num_stopped else ""
    return [
        point.label,
        f"{point.ratio:g}",
        f"{score.mean:.3f}",
        f"{score.low:.3f} to {score.high:.3f}" if known else "too few seeds",
        f"{point.gain.mean:+.3f}",
        f"{score.n}{stopped}",
    ]


def _document(curve: Curve) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(curve)


def _csv(found: list[Curve]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [
            "axis",
            "arm",
            "metric",
            "label",
            "ratio",
            "score",
            "low",
            "high",
            "gain",
            "n",
            "num_stopped",
            "seed",
            "seed_score",
        ]
    )
    for curve in found:
        for point in curve.points:
            for seed, value in point.seeds:
                s = point.score
                writer.writerow(
                    [
                        curve.axis,
                        curve.arm,
                        curve.metric,
                        point.label,
                        point.ratio,
                        s.mean,
                        s.low,
                        s.high,
                        point.gain.mean,
                        s.n,
                        point.num_stopped,
                        seed,
                        value,
                    ]
                )
    return stream.getvalue()
