"""`stepladder doctor`: every row says what was found; every problem has its fix."""

import importlib.metadata
import json

from click.testing import CliRunner

from stepladder.cli import doctor_cmd
from stepladder.cli.doctor_cmd import BLOCKED_EXIT_CODE, State, check_machine, doctor
from stepladder.store.provenance import num_cores


def test_every_problem_has_a_fix(tmp_path):
    for check in check_machine(tmp_path / "runs", tmp_path / "cache"):
        assert check.found
        assert (check.state is State.OK) == (not check.fix), check


def test_json_is_one_document(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLADDER_CACHE", str(tmp_path))
    result = CliRunner().invoke(doctor, ["--json"])
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert {"Python", "memory", "torch"} <= {check["name"] for check in document["checks"]}
    assert result.exit_code == (BLOCKED_EXIT_CODE if document["blocked"] else 0)


def test_without_torch_training_is_blocked_and_the_fix_is_one_command(monkeypatch, tmp_path):
    real = importlib.metadata.version

    def version(name):
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setenv("STEPLADDER_CACHE", str(tmp_path))
    result = CliRunner().invoke(doctor, [])
    assert result.exit_code == BLOCKED_EXIT_CODE
    assert "pip install 'stepladder[train]'" in result.stdout
    assert "blocked by: torch" in result.stdout


def test_cores_are_cut_by_the_quota(tmp_path):
    assert num_cores(tmp_path) >= 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert num_cores(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert num_cores(tmp_path) >= 1


def test_a_full_disk_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor_cmd, "LEAST_DISK_BYTES", 2**80)
    assert doctor_cmd.check_disk(tmp_path / "not/there/yet").state is State.BLOCKED


def test_a_file_in_the_way_is_not_writable(tmp_path):
    (tmp_path / "runs").write_text("a file")
    assert doctor_cmd.check_writable("runs", tmp_path / "runs", "rm runs").state is State.BLOCKED
