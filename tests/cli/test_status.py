import json
import subprocess
import sys

from factories import make_small_plan, write_run

from stepladder.cli.main import run_command
from stepladder.store.study_store import StudyStore
from stepladder.study.collect import cell_folder
from stepladder.study.plan_json import plan_to_json


def make_folder(folder):
    plan = make_small_plan()
    StudyStore(folder).write_plan(plan_to_json(plan))
    write_run(cell_folder(folder, plan.cells[0]), plan.cells[0].run)
    write_run(
        cell_folder(folder, plan.cells[1]), plan.cells[1].run, state="stopped", reason="KL above 1"
    )
    write_run(cell_folder(folder, plan.cells[2]), plan.cells[2].run, state="running")
    return plan


def test_status_counts_states(tmp_path, capsys):
    make_folder(tmp_path)
    assert run_command(["status", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # The running one has no living writer: it will go on, and is pending until then.
    assert found["counts"] == {"done": 1, "stopped": 1, "pending": 2}
    assert found["running"] is False
    assert found["runs"][0]["score"] == 0.75
    assert found["runs"][0]["step"] == 4


def test_status_for_people_names_the_reason(tmp_path, capsys):
    make_folder(tmp_path)
    assert run_command(["status", str(tmp_path)]) == 0
    assert "KL above 1" in capsys.readouterr().out


def test_status_of_a_single_run(tmp_path, capsys):
    run = make_small_plan().cells[0].run
    write_run(tmp_path / "one", run)
    assert run_command(["status", str(tmp_path / "one"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"done": 1}


def test_status_imports_nothing_heavy(tmp_path):
    make_folder(tmp_path)
    code = (
        "import sys\n"
        "from stepladder.cli.main import run_command\n"
        f"assert run_command(['status', {str(tmp_path)!r}]) == 0\n"
        "heavy = ('torch', 'numpy', 'scipy', 'pydantic', 'rich', 'plotly')\n"
        "assert not [m for m in heavy if m in sys.modules]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


def test_stop_asks_only_what_runs(tmp_path, capsys):
    make_folder(tmp_path)
    assert run_command(["stop", str(tmp_path)]) == 0
    assert "nothing runs" in capsys.readouterr().err
    assert not (tmp_path / "STOP").exists()
    with StudyStore(tmp_path).lock():
        assert run_command(["stop", str(tmp_path)]) == 0
    assert (tmp_path / "STOP").exists()
