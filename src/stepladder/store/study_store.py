"""A study folder: the plan, events, run folders and the stop file. Plans cross as JSON values."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from stepladder.core.errors import StoreError
from stepladder.spec.study import FORMAT_VERSION
from stepladder.store import jsonl, layout, lock
from stepladder.store.run_store import RunStore

_SCRATCH = re.compile(r"\..+\.\d+(\.tmp)?")


class StudyStore:
    """Writes and reads one study folder."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which may not exist yet."""
        self.folder = folder

    @property
    def plan_path(self) -> Path:
        """The fixed plan."""
        return self.folder / layout.PLAN

    @property
    def toml_path(self) -> Path:
        """What the user wrote."""
        return self.folder / layout.STUDY_TOML

    @property
    def report_folder(self) -> Path:
        """Where the report is written."""
        return self.folder / layout.REPORT

    @property
    def stop_path(self) -> Path:
        """Present while the study is asked to drain."""
        return self.folder / layout.STOP

    def lock(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Return the block in which this process is the one that runs the study."""
        return lock.hold(self.folder / layout.STUDY_LOCK, "this study", wait_s)

    def sweep(self) -> int:
        """Remove what writers that were killed left half-written; return how much. Hold the lock.

        Files and folders are written under a hidden name that ends in the writer's process id.
        """
        left = [path for path in self.folder.rglob(".*") if _SCRATCH.fullmatch(path.name)]
        for path in left:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return len(left)

    def is_running(self) -> bool:
        """Tell whether some process runs the study."""
        return lock.is_held(self.folder / layout.STUDY_LOCK)

    def read_plan(self) -> dict[str, Any] | None:
        """Return the plan; None when none was written.

        Raises
            StoreError: unreadable, or the folder is of another format version.
        """
        if not self.plan_path.exists():
            return None
        plan = jsonl.read_json(self.plan_path)
        if plan.get("format_version") != FORMAT_VERSION:
            raise StoreError(
                "SL0406",
                f"is a study of format {plan.get('format_version')}, this is {FORMAT_VERSION}",
                str(self.plan_path),
                "use the stepladder version that wrote it, or another folder",
            )
        return plan

    def write_plan(self, plan: Mapping[str, Any], toml_text: str | None = None) -> None:
        """Write the plan, and the study's text first so that a plan never stands without it."""
        if toml_text is not None:
            jsonl.write_bytes(self.toml_path, toml_text.encode())
        jsonl.write_json(self.plan_path, plan)

    def event(self, kind: str, **details: object) -> None:
        """Append one event; `details` are JSON values."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / layout.EVENTS
        jsonl.mend_tail(path)
        jsonl.append_row(path, {"t": time.time(), "kind": kind, **details})

    def events(self) -> tuple[jsonl.Row, ...]:
        """Return every event in order."""
        return jsonl.read_rows(self.folder / layout.EVENTS).rows

    def run_folder(self, cell_id: str) -> Path:
        """Return the folder of a cell's run."""
        return self.folder / layout.RUNS / cell_id

    def run_store(self, cell_id: str) -> RunStore:
        """Return the store of a cell's run."""
        return RunStore(self.run_folder(cell_id))

    def request_stop(self) -> None:
        """Ask the study to drain: running cells checkpoint and end, no new one starts."""
        jsonl.write_bytes(self.stop_path, b"")

    def stop_requested(self) -> bool:
        """Tell whether the study was asked to drain."""
        return self.stop_path.exists()

    def clear_stop(self) -> None:
        """Withdraw the request; done when a study is started again."""
        self.stop_path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything that a study wrote, for `--fresh`; the user's other files stay."""
        for name in (layout.RUNS, layout.REPORT):
            if (self.folder / name).exists():
                shutil.rmtree(self.folder / name)
        for name in (layout.PLAN, layout.EVENTS, layout.STOP):
            (self.folder / name).unlink(missing_ok=True)
