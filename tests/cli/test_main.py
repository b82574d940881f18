import json
import subprocess
import sys

import pytest

from stepladder.cli.main import VERBS, run_command

HEAVY = ("torch", "numpy", "scipy", "pydantic", "rich", "plotly")


def imported_by(*arguments):
    """Return which heavy modules a command line imports, in a fresh interpreter."""
    code = (
        "import sys, json\n"
        "from stepladder.cli.main import run_command\n"
        f"run_command({list(arguments)!r})\n"
        f"sys.stderr.write(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(argument):
    assert imported_by(argument) == []


def test_help_lists_every_verb_and_says_how_to_begin(capsys):
    assert run_command(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)
    assert "stepladder rehearse" in out


def test_a_mistyped_verb_is_named(capsys):
    assert run_command(["rehears"]) == 2
    assert "Did you mean 'rehearse'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["rehearse", "plan", "run", "train", "curves", "report"])
def test_every_verb_has_help_with_an_example(verb, capsys):
    assert run_command([verb, "--help"]) == 0
    assert f"stepladder {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["status", "stop", "curves", "report", "run"])
def test_without_a_study_it_says_how_to_begin(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command([verb]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: SL0220")
    assert "stepladder rehearse" in err
    assert list(tmp_path.iterdir()) == []


def test_an_unexpected_fault_is_one_line_and_exit_1(capsys, monkeypatch, tmp_path):
    def broken(*_args, **_keywords):
        raise RuntimeError("boom")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepladder.cli.study_cmds.find_study", broken)
    assert run_command(["status"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: SL0001 internal: RuntimeError: boom (--debug shows where)"
    ]


def test_debug_shows_the_traceback(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run_command(["status", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
