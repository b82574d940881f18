"""What each verb imports: help is quick, and no verb but those that train loads torch."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "numpy", "scipy", "pydantic", "rich", "plotly"}
PROGRAM = """
import json, sys
from stepladder.cli.main import run_command
code = run_command(sys.argv[1:])
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"code": code, "loaded": loaded}), file=sys.stderr)
"""


def loaded_by(*words, folder):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
        timeout=120,
    )
    last = json.loads(run.stderr.strip().splitlines()[-1])
    return last["code"], set(last["loaded"]), run.stdout


@pytest.mark.parametrize("words", [["--help"], ["--version"], []], ids=" ".join)
def test_help_and_version_import_nothing_heavy(words, tmp_path):
    _, loaded, _ = loaded_by(*words, folder=tmp_path)
    assert not loaded & HEAVY


VERBS = [
    ["doctor"],
    ["tasks", "list"],
    ["tasks", "show", "arithmetic"],
    ["plan"],
    ["status"],
    ["report"],
    ["curves"],
    *([verb, "--help"] for verb in ("rehearse", "run", "train", "stop")),
]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_verbs_that_only_read_never_import_torch(words, tmp_path):
    # Some end with an error in an empty folder; what counts is what was imported by then, and
    # tests/cli reads real folders.
    code, loaded, _ = loaded_by(*words, folder=tmp_path)
    assert code != 1, "an internal error"
    assert not loaded & {"torch", "transformers"}


def test_importing_the_package_imports_nothing_heavy(tmp_path):
    program = "import sys, stepladder; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert not set(run.stdout.split()) & {*HEAVY, "click"}
