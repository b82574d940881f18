"""The verbs `tasks list`, `tasks show` and `tasks audit`."""

import json
from pathlib import Path

from click.testing import CliRunner

from stepladder.cli.task_cmds import tasks

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_task"
SMALL = ["--set", "num_train=40", "--set", "num_eval=20", "--set", "num_holdout=10"]


def call(*arguments):
    return CliRunner().invoke(tasks, list(arguments))


def test_list():
    result = call("list")
    assert result.exit_code == 0
    assert all(name in result.output for name in ("arithmetic", "countdown", "letters", "rows"))
    named = [task["name"] for task in json.loads(call("list", "--json").output)["tasks"]]
    assert "rows" in named


def test_show():
    result = call("show", "arithmetic", *SMALL, "--set", "digits=3", "--num", "2")
    assert result.exit_code == 0
    assert "train 40, eval 20, holdout 10" in result.output
    document = json.loads(call("show", "countdown", *SMALL, "--json").output)
    assert document["outcome"] == "countdown" and len(document["prompts"]) == 3
    by_name = {s["setting"]: s for s in document["settings"]}
    assert by_name["num_train"]["value"] == 40 and by_name["numbers"]["meaning"]


def test_audit_passes_for_a_builtin():
    result = call("audit", "letters", *SMALL, "--num", "20", "--json")
    document = json.loads(result.output)
    assert result.exit_code == 0 and document["passed"]
    assert all(check["passed"] for check in document["checks"])


def test_audit_of_a_strangers_task(monkeypatch):
    monkeypatch.chdir(EXAMPLE)
    result = call("audit", "parity:Parity", "--set", "length=7", "--num", "30")
    assert result.exit_code == 0, result.output
    assert "every check passed" in result.output


def test_audit_fails_with_exit_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = '{{"prompt": "{0}?", "answer": {0}}}\n'
    Path("a.jsonl").write_text("".join(row.format(i) for i in range(20)))
    Path("b.jsonl").write_text("".join(row.format(i) for i in range(15, 25)))
    result = call("audit", "rows", "--set", "path=a.jsonl", "--set", "eval_path=b.jsonl")
    assert result.exit_code == 2
    assert "SL0230" in result.output and "FAILED" in result.output
