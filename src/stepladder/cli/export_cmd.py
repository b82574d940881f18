"""`export`: a run's policy as a Hugging Face folder. Imports stand inside functions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from stepladder.cli.output import OK, echo, print_json
from stepladder.core.errors import SpecError, StoreError
from stepladder.store import layout

POLICY = "policy"
"""Where a run that ended leaves its trained policy."""
BEST = "best"
ENGINE = "stepladder.engine.export"
"""Loads torch, so it runs in a process of its own."""


@click.command(
    epilog="\b\nExamples:\n"
    "  stepladder export runs/train --out models/mine\n"
    "  stepladder export runs/train --checkpoint best --out models/best\n"
    "  stepladder export runs/train --checkpoint step-000050 --out models/half"
)
@click.argument("run_folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
@click.option("--checkpoint", metavar="NAME", help="A checkpoint of the run, or `best`.")
@click.option("--model", type=click.Path(path_type=Path), help="The base model, if it has moved.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(
    run_folder: Path, out: Path, checkpoint: str | None, model: Path | None, as_json: bool
) -> int:
    """Write a run's policy as a Hugging Face folder with its tokenizer.

    Without --checkpoint it is the policy with which the run ended.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError("SL0242", "is there already", str(out), "name a new folder with --out")
    if not (run_folder / layout.RUN).is_file():
        what = "holds no run" if run_folder.is_dir() else "is not there"
        raise StoreError("SL0243", what, str(run_folder), "name the folder of one run")
    if out.exists():
        out.rmdir()
    out.parent.mkdir(parents=True, exist_ok=True)
    name = checkpoint
    if name is None:
        copy_policy(run_folder, out)
    else:
        name = export_checkpoint(run_folder, name, model, out)
    if as_json:
        print_json({"schema": 1, "folder": str(out), "checkpoint": name})
    else:
        echo(f"{name or 'the trained policy'} of {run_folder} is now {out}")
    return OK


def checkpoint_names(run_folder: Path) -> list[str]:
    """Return the checkpoints of a run, newest first."""
    found = [p.name for p in (run_folder / layout.CHECKPOINTS).glob("step-*") if p.is_dir()]
    return sorted(found, key=lambda name: (len(name), name), reverse=True)


def copy_policy(run_folder: Path, out: Path) -> None:
    """Copy the policy that a run ended with.

    Raises
        StoreError: the run has not ended.
    """
    policy = run_folder / POLICY
    if not (policy / "config.json").is_file():
        names = checkpoint_names(run_folder)
        fix = f"--checkpoint {names[0]}" if names else "go on with the run first"
        raise StoreError(
            "SL0244", "has not ended and holds no trained policy", str(run_folder), fix
        )
    scratch = out.with_name(f".{out.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(policy, scratch)
    scratch.rename(out)


def export_checkpoint(run_folder: Path, name: str, model: Path | None, out: Path) -> str:
    """Write a checkpoint's policy and return the checkpoint's name.

    Raises
        StoreError: there is no such checkpoint, or it cannot be read.
        SpecError: the base model is not to be found.
    """
    from stepladder.cli.study_cmds import require_training

    names = checkpoint_names(run_folder)
    if not names or name not in (*names, BEST):
        raise StoreError(
            "SL0245",
            f"has no checkpoint {name!r}; it has {', '.join(names) or 'none'}",
            str(run_folder),
            f"name one of them, or {BEST}" if names else "train first",
        )
    require_training()
    settings = _settings(run_folder)
    order = {
        "checkpoints": str(run_folder / layout.CHECKPOINTS),
        "name": name,
        "source": str(_base_model(run_folder, settings, model)),
        "model": settings["model"],
        "target": str(out),
    }
    done = subprocess.run(
        [sys.executable, "-m", ENGINE],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise StoreError("SL0246", f"the export failed: {last}", str(run_folder)) from None
    if "error" in answer:
        raise StoreError(*answer["error"])
    return str(answer["checkpoint"])


def _settings(run_folder: Path) -> dict[str, Any]:
    """Return a run's settings as the tree that its file would hold."""
    from stepladder.spec.base import with_leaf
    from stepladder.store.jsonl import read_json

    tree: dict[str, Any] = {}
    for path, value in read_json(run_folder / layout.RUN).get("settings", {}).items():
        tree = with_leaf(tree, path, value)
    return {"model": {}, "task": {}, **tree}


def _base_model(run_folder: Path, settings: dict[str, Any], model: Path | None) -> Path:
    """Return the folder of the base model: given, as the settings say, or the run's own policy."""
    from stepladder.launch.base_policy import base_policy_folder, is_ready
    from stepladder.spec.run import ModelSpec
    from stepladder.store.jsonl import read_json

    if model is not None and not is_ready(model):
        raise SpecError("SL0107", f"no model at {str(model)!r}", "--model", "a folder that has one")
    if model is not None:
        return model
    job = run_folder / layout.JOB
    written_in = read_json(job).get("payload", {}).get("plugin_folder") if job.is_file() else None
    path = str(settings["model"].get("path", ModelSpec().path))
    base = base_policy_folder(path, settings["task"], Path(written_in) if written_in else None)
    # A trained policy has the base's shape and tokenizer, but for adapters its weights are wrong.
    own = run_folder / POLICY
    found = [folder for folder in (base, own) if is_ready(folder)]
    if not found or (found[0] == own and settings["model"].get("lora")):
        raise SpecError(
            "SL0107",
            f"the run's base model {path!r} is not on this machine",
            str(run_folder),
            "give its folder: --model FOLDER",
        )
    return found[0]
