import json

import pytest
from factories import make_costs, make_plan

from stepladder.cli.main import run_command
from stepladder.store.study_store import StudyStore
from stepladder.study.plan_json import plan_to_json

BAD = {
    "unknown key": ("[base.optim]\nlearning_rat = 1e-4\n", "did you mean 'base.optim.lr'?"),
    "lr as text": ('[base.optim]\nlr = "fast"\n', "base.optim.lr"),
    "negative lr": ("[base.optim]\nlr = -1e-4\n", "base.optim.lr"),
    "zero lr": ("[base.optim]\nlr = 0\n", "base.optim.lr"),
    "NaN lr": ("[base.optim]\nlr = nan\n", "base.optim.lr"),
    "batch not divisible": ("[base.optim]\nminibatch_size = 100\n", "does not divide"),
    "long warm-up": ("[base.optim]\nwarmup_steps = 500\n", "never reach its peak"),
    "group of one": ("[axes]\nsamples_per_prompt = [1, 2]\n", "group size below 2"),
    "half-written": ("[base.optim\nlr = 1", "is not valid TOML"),
    "no such model": ('[axes]\nmodel = ["ladder-x3"]\n', "did you mean"),
    "no such task": ('[base.task]\ntype = "arithmetik"\n', "did you mean 'arithmetic'?"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_exit_2_and_nothing_written(
    case, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text, expected = BAD[case]
    (tmp_path / "study.toml").write_text(text)
    for verb in ("plan", "run"):
        assert run_command([verb, "study.toml", "--out", "runs/x"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert expected in err
        assert len(err.splitlines()) == 1
        assert err.startswith("error: SL")
        assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def test_plan_without_a_study_shows_the_rehearsal_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["plan"]) == 0
    out = capsys.readouterr().out
    assert "22 runs" in out
    assert "reports.model.lr" in out
    assert list(tmp_path.iterdir()) == []


def test_plan_as_json_is_only_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["plan", "--json", "--set", "seeds=[4,5,6]"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {cell["seed"] for cell in document["cells"]} == {4, 5, 6}


def test_plan_trims_with_costs_that_a_study_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store = StudyStore(tmp_path / "done")
    store.write_plan(plan_to_json(make_plan(costs=make_costs())))
    assert run_command(["plan", "done", "--budget", "4m", "--slots", "2"]) == 0
    out = capsys.readouterr().out
    assert "trimmed: every run has" in out
    assert "at 2 slots" in out


def test_plan_with_a_budget_and_no_costs_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["plan", "--budget", "4m"]) == 2
    assert "stepladder run" in capsys.readouterr().err


def test_a_changed_study_lists_what_differs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text('name = "a"\n')
    StudyStore(tmp_path / "runs" / "a").write_plan(plan_to_json(make_plan(name="a")))
    (tmp_path / "study.toml").write_text('name = "a"\n[axes]\nsamples_per_prompt = [8, 16]\n')
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert run_command(["run", "study.toml"]) == 2
    err = capsys.readouterr().err
    assert err.count("error:") == 1
    assert "axes.samples_per_prompt: is [8, 16], but the plan was made with [8, 4, 16]" in err
    assert "--fresh" in err
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_folder_of_another_version_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    document = {**plan_to_json(make_plan()), "format_version": 7}
    StudyStore(tmp_path / "old").write_plan(document)
    assert run_command(["run", "old"]) == 2
    assert "format 7" in capsys.readouterr().err
    assert run_command(["rehearse", "--out", "old"]) == 2
    assert "format 7" in capsys.readouterr().err


@pytest.mark.parametrize("budget", ["soon", "-3m", "0s"])
def test_a_budget_that_is_no_time_is_refused(budget, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["rehearse", f"--budget={budget}"]) == 2
    assert "write 90s, 6m or 1h" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
