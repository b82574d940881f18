"""`plan` on one run: a preset by name, a run file, JSON, Chinese; `train` on a shape."""

# ruff: noqa: RUF001  (Chinese punctuation is meant)
import json

import pytest

from stepladder.cli.main import run_command
from stepladder.cli.plan_run_texts import TEXTS
from stepladder.spec.convert import REPORT_SECTIONS


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


def test_the_preset_shows_every_key_memory_and_operations(tmp_path, capsys):
    assert run_command(["plan", "report-a-medium"]) == 0
    out = capsys.readouterr().out
    keys = [f"{section}.{key}" for section, names in REPORT_SECTIONS.items() for key in names]
    assert [key for key in keys if key not in out] == []
    for expected in ("1,345,423,360", "32 updates a batch", "30% kept free", "6ND", "--model"):
        assert expected in out
    assert list(tmp_path.iterdir()) == []


def test_in_chinese(capsys):
    assert run_command(["--lang", "zh", "plan", "report-a-medium"]) == 0
    out = capsys.readouterr().out
    assert "参数量：1,345,423,360" in out
    assert "每批 32 次更新" in out


def test_a_run_file_shows_what_differs(tmp_path, capsys):
    (tmp_path / "run.toml").write_text('[optim]\nlr = 1e-4\n[model]\npath = "ladder-x2"\n')
    assert run_command(["plan", "run.toml", "--set", "budget.steps=50"]) == 0
    out = capsys.readouterr().out
    assert "optim.lr" in out
    assert "run.toml" in out
    assert "--set" in out
    assert "shape without weights" not in out


def test_json_is_only_json(capsys):
    assert run_command(["plan", "report-a-medium", "--json", "--set", "optim.lr=1e-5"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["optim.lr"] == 1e-5
    assert document["num_parameters"] == 1_345_423_360
    assert document["device_bytes"] > document["memory_bytes"]
    assert {row["theirs"] for row in document["converted"]} >= {"rl.gamma", "train.lr"}


def test_a_bad_key_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "run.toml").write_text("[algorithm]\nclip_lo = 0.1\n")
    assert run_command(["plan", "run.toml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "run.toml: algorithm.clip_lo: " in err
    assert "did you mean 'algorithm.clip_low'?" in err


@pytest.mark.parametrize("option", [["--budget", "5m"], ["--slots", "2"]])
def test_options_of_a_study_are_refused_for_a_run(option, capsys):
    assert run_command(["plan", "report-a-medium", *option]) == 2
    assert option[0] in capsys.readouterr().err


def test_train_refuses_a_shape_and_writes_nothing(tmp_path, capsys):
    assert run_command(["train", "report-a-medium", "--out", "runs/a"]) == 2
    err = capsys.readouterr().err
    assert "no weights to train" in err
    assert "--model" in err
    assert list(tmp_path.iterdir()) == []


def test_every_text_has_both_languages_and_the_same_places():
    import string

    for key, (english, chinese) in TEXTS.items():
        places = [
            {name for _, name, _, _ in string.Formatter().parse(words) if name}
            for words in (english, chinese)
        ]
        assert places[0] == places[1], key
