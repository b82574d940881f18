"""A run folder: the recorder that the engine writes through, and the record that others read.

Rows carry what is reproducible at the top and everything else (times, memory) under `sys`, so that
two runs of one seed have equal files up to `sys`. One process writes a run folder at a time.
"""

from __future__ import annotations

import gzip
import json
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from stepladder.core.errors import StoreError
from stepladder.core.job import JobState, JobStatus
from stepladder.core.metrics import StepMetrics, split_finite
from stepladder.core.record import EvalRow, RunRecord
from stepladder.core.rollout import Rollout, RolloutGroup
from stepladder.spec.run import RecordSpec
from stepladder.store import jsonl, layout, lock

FORMAT_VERSION = 1
FINAL = frozenset({JobState.DONE, JobState.STOPPED})
"""States that a re-run leaves as they are."""
INTERRUPTED = "interrupted: it goes on from its last checkpoint when it is started again"


class RunStore:
    """Writes and reads one run folder."""

    def __init__(self, folder: Path, record: RecordSpec | None = None) -> None:
        """Take the folder, which may not exist yet, and what is kept of rollouts."""
        self.folder = folder
        self._kept = record or RecordSpec()
        self._mended: set[str] = set()

    def lock(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Return the block in which this process is the folder's one writer."""
        return lock.hold(self.folder / layout.RUN_LOCK, "this run folder", wait_s)

    # --- run.json ---

    def begin(self, run_json: Mapping[str, Any]) -> str:
        """Open a session: the run is running from here; return the session's id.

        Raises
            StoreError: the folder belongs to another run or another format.
        """
        earlier = self.header()
        if earlier and earlier.get("run_id") != run_json.get("run_id"):
            raise StoreError(
                "SL0405",
                f"holds run {earlier.get('run_id')}, not {run_json.get('run_id')}",
                str(self.folder),
                "settings cannot change inside a run: use a new folder or --fresh",
            )
        session = {"id": uuid.uuid4().hex[:12], "started": _now(), "from_step": self.last_step()}
        header = {
            "format_version": FORMAT_VERSION,
            "num_parameters": None,
            "final_step": None,
            **run_json,
            "state": JobState.RUNNING.value,
            "reason": "",
            "started": earlier.get("started") or session["started"],
            "ended": None,
            "sessions": [*earlier.get("sessions", []), session],
        }
        jsonl.write_json(self.folder / layout.RUN, header)
        return str(session["id"])

    def end(self, state: JobState, reason: str = "", **facts: Any) -> None:
        """Close the session with the run's state; `facts` such as num_parameters are added."""
        header = self.header()
        header.update(facts, state=state.value, reason=reason, ended=_now())
        jsonl.write_json(self.folder / layout.RUN, header)

    def header(self) -> dict[str, Any]:
        """Return run.json; empty when the run never began.

        Raises
            StoreError: unreadable, or written by another version.
        """
        path = self.folder / layout.RUN
        if not path.exists():
            return {}
        header = jsonl.read_json(path)
        if header.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
            raise StoreError(
                "SL0406",
                f"is a run of format {header.get('format_version')}, this is {FORMAT_VERSION}",
                str(path),
                "use the stepladder version that wrote it",
            )
        return header

    def status(self) -> JobStatus:
        """Return where the run stands; running without a living writer is pending again."""
        header = self.header()
        if not header:
            return JobStatus(state=JobState.PENDING)
        state = JobState(header["state"])
        if state is JobState.RUNNING and not lock.is_held(self.folder / layout.RUN_LOCK):
            return JobStatus(state=JobState.PENDING, reason=INTERRUPTED)
        return JobStatus(state=state, reason=header.get("reason", ""))

    # --- the recorder ---

    def step(self, metrics: StepMetrics) -> None:
        """Append one step; rows of this step or later ones from an earlier session give way."""
        finite, odd = split_finite(metrics.values)
        row = {
            "step": metrics.step,
            "m": dict(sorted(finite.items())),
            "nan": sorted({*metrics.non_finite, *odd}),
            "num_samples": metrics.num_samples,
            "num_tokens": metrics.num_tokens,
            "sys": _system(metrics.system),
        }
        self._append(layout.METRICS, metrics.step, row)

    def evaluation(self, row: EvalRow, system: Mapping[str, float]) -> None:
        """Append one evaluation."""
        finite, odd = split_finite(row.values)
        written = {
            "step": row.step,
            "m": dict(sorted(finite.items())),
            "nan": list(odd),
            "items": {prompt: list(counts) for prompt, counts in sorted(row.items.items())},
            "num_samples": row.num_samples_seen,
            "num_tokens": row.num_tokens_seen,
            "sys": _system(system),
        }
        self._append(layout.EVALS, row.step, written)

    def rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Write the first rollouts of a step; when it is called is the loop's matter."""
        chosen = [(group.group_id, item) for group in groups for item in group.rollouts]
        rows = (
            jsonl.encode(_rollout_row(group_id, item, text=self._kept.store_text))
            for group_id, item in chosen[: self._kept.rollouts_per_dump]
        )
        text = "".join(f"{row}\n" for row in rows)
        # mtime 0 keeps the file a function of its rows.
        data = gzip.compress(text.encode(), compresslevel=3, mtime=0)
        jsonl.write_bytes(layout.rollout_file(self.folder, step), data)

    def event(self, kind: str, step: int, **details: object) -> None:
        """Append one event; `details` are JSON values."""
        path = self.folder / layout.EVENTS
        self._mend(path)
        row = {"kind": kind, "step": step, "details": details, "sys": {"t": time.time()}}
        jsonl.append_row(path, row)

    def truncate_after(self, step: int) -> None:
        """Drop metrics, evaluations and rollouts of later steps; -1 drops them all."""
        for name in (layout.METRICS, layout.EVALS):
            self._keep(name, lambda row: row["step"] <= step)
        for path in self._rollout_files():
            found = layout.rollout_step(path)
            if found is not None and found > step:
                path.unlink()

    def drop_evaluation(self, step: int) -> None:
        """Drop the evaluation of one step, such as one taken only because a run was asked to end."""
        self._keep(layout.EVALS, lambda row: row["step"] != step)

    def _keep(self, name: str, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        path = self.folder / name
        if not path.exists():
            return
        found = jsonl.read_rows(path)
        kept = [row for row in found.rows if _has_step(row) and wanted(row)]
        if found.num_torn or len(kept) < len(found.rows):
            jsonl.write_rows(path, kept)
        self._mend(path)

    def _append(self, name: str, step: int, row: Mapping[str, Any]) -> None:
        if name not in self._mended:  # an earlier session may have left this step or a torn line
            self._keep(name, lambda other: other["step"] < step)
        path = self.folder / name
        self._mend(path)
        jsonl.append_row(path, row)

    def _mend(self, path: Path) -> None:
        if path.name not in self._mended:
            path.parent.mkdir(parents=True, exist_ok=True)
            jsonl.mend_tail(path)
            self._mended.add(path.name)

    # --- reading ---

    def last_step(self) -> int | None:
        """Return the last step with a row; None when there is none."""
        steps = [row["step"] for row in self._rows(layout.METRICS)]
        return max(steps) if steps else None

    def num_torn(self) -> int:
        """Return how many lines of metrics and evaluations could not be read and were skipped."""
        names = (layout.METRICS, layout.EVALS)
        return sum(jsonl.read_rows(self.folder / name).num_torn for name in names)

    def steps(self) -> list[StepMetrics]:
        """Return every step in order as an observer saw it, evaluations merged in."""
        rows = {row["step"]: row for row in self._rows(layout.METRICS)}
        evaluated = {row["step"]: row for row in self._rows(layout.EVALS)}
        return [
            _step_metrics(step, rows.get(step), evaluated.get(step))
            for step in sorted({*rows, *evaluated})
        ]

    def evaluations(self) -> list[EvalRow]:
        """Return every evaluation in order."""
        rows = {row["step"]: row for row in self._rows(layout.EVALS)}
        return [_eval_row(rows[step]) for step in sorted(rows)]

    def events(self) -> tuple[jsonl.Row, ...]:
        """Return every event in order."""
        return jsonl.read_rows(self.folder / layout.EVENTS).rows

    def record(self) -> RunRecord:
        """Return the run as arrays; settings and state may be missing while it has not begun."""
        header = self.header()
        rows = {row["step"]: row for row in self._rows(layout.METRICS)}
        steps = sorted(rows)
        return RunRecord(
            run=self.folder.name,
            settings=header.get("settings", {}),
            steps=np.array(steps, dtype=np.int64),
            metrics=_columns([rows[step] for step in steps]),
            evals=tuple(self.evaluations()),
            status=self.status().state.value if header else "unknown",
            reason=header.get("reason", ""),
            samples=self._samples if self._rollout_files() else None,
            lineage=tuple(session["id"] for session in header.get("sessions", [])),
            non_finite=_non_finite([rows[step] for step in steps]),
        )

    def _rows(self, name: str) -> list[jsonl.Row]:
        """Return the rows with a step; of two rows of one step the later stands."""
        return [row for row in jsonl.read_rows(self.folder / name).rows if _has_step(row)]

    def _rollout_files(self) -> list[Path]:
        return sorted((self.folder / layout.ROLLOUTS).glob("step-*.jsonl.gz"))

    def _samples(self) -> Iterator[Mapping[str, Any]]:
        for path in self._rollout_files():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    yield {"step": layout.rollout_step(path), **json.loads(line)}


def _has_step(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("step"), int)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _system(values: Mapping[str, float]) -> dict[str, float]:
    finite, _ = split_finite(values)
    return {"t": time.time(), **dict(sorted(finite.items()))}


def _rollout_row(group_id: int, rollout: Rollout, *, text: bool) -> dict[str, Any]:
    completion = rollout.completion
    row: dict[str, Any] = {
        "prompt_id": rollout.prompt.id,
        "group": group_id,
        "sample": completion.sample,
        "reward": _number(rollout.reward),
        "terms": {name: _number(value) for name, value in sorted(rollout.terms.items())},
        "failure": rollout.failure,
        "missing": list(rollout.missing),
        "num_tokens": len(completion.token_ids),
        "stop": completion.stop.value,
        "policy_version": completion.policy_version,
    }
    if text:
        row |= {
            "prompt": rollout.prompt.text,
            "gold": rollout.prompt.gold,
            "completion": completion.text,
        }
    return row


def _number(value: float) -> float | None:
    """Return the value, or None for NaN and infinities, which JSON does not have."""
    return value if math.isfinite(value) else None


def _eval_row(row: Mapping[str, Any]) -> EvalRow:
    return EvalRow(
        step=row["step"],
        values=row["m"],
        items={prompt: (right, drawn) for prompt, (right, drawn) in row["items"].items()},
        num_samples_seen=row["num_samples"],
        num_tokens_seen=row["num_tokens"],
    )


def _step_metrics(
    step: int, row: Mapping[str, Any] | None, evaluated: Mapping[str, Any] | None
) -> StepMetrics:
    parts = [part for part in (row, evaluated) if part is not None]
    return StepMetrics(
        step=step,
        values={name: value for part in parts for name, value in part["m"].items()},
        system={name: value for part in parts for name, value in part["sys"].items()},
        num_samples=parts[0]["num_samples"],
        num_tokens=parts[0]["num_tokens"],
        non_finite=tuple(sorted({name for part in parts for name in part["nan"]})),
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return name -> [S]; NaN where a row has no value; the clock reading is left out."""
    flat = [
        {
            **row["m"],
            **{name: value for name, value in row["sys"].items() if name != "t"},
            "num_samples": row["num_samples"],
            "num_tokens": row["num_tokens"],
        }
        for row in rows
    ]
    names = sorted({name for row in flat for name in row})
    return {name: np.array([row.get(name, math.nan) for row in flat]) for name in names}


def _non_finite(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    names = sorted({name for row in rows for name in row["nan"]})
    return {name: tuple(row["step"] for row in rows if name in row["nan"]) for name in names}
