"""Bad input through the command line: one line a fault, with a suggestion, and nothing written.

`test_plan_verb` holds what `plan` and `run` say of bad study settings.
"""

import json
import shutil

import pytest
from factories import make_plan
from tiny import tiny_policy

from stepladder.cli.main import run_command
from stepladder.spec.run import RunSpec
from stepladder.store.run_store import RunStore
from stepladder.store.study_store import StudyStore
from stepladder.study.plan_json import plan_to_json

SETTINGS = {
    "unknown key": ("[optim]\nlearning_rat = 1e-4\n", "optim.learning_rat", "'optim.lr'"),
    "lr as text": ('[optim]\nlr = "fast"\n', "optim.lr: 'fast'", "a plain number"),
    "lr as quoted number": ('[optim]\nlr = "1e-4"\n', "optim.lr: '1e-4'", "without quotes"),
    "steps as truth value": ("[budget]\nsteps = true\n", "budget.steps: True", "a whole number"),
    "part of a step": ("[budget]\nsteps = 1.5\n", "budget.steps: 1.5", "a whole number"),
    "negative": ("[kl]\ncoef = -0.1\n", "kl.coef: -0.1", "inside the limit"),
    "zero": ("[sampling]\ntemperature = 0\n", "sampling.temperature: 0", "inside the limit"),
    "NaN": ("[optim]\nlr = nan\n", "optim.lr: nan", "cannot be used"),
    "infinite": ("[optim]\nmax_grad_norm = inf\n", "optim.max_grad_norm: inf", "cannot be used"),
    "NaN weight": ("[reward.weights]\nformat = nan\n", "weights.format: nan", "cannot be used"),
    "batch not divisible": ("[optim]\nminibatch_size = 100\n", "does not divide", "such as 128"),
    "microbatch": ("[optim]\nmicrobatch_size = 100\n", "does not divide", "such as 128"),
    "long warm-up": ("[optim]\nwarmup_steps = 500\n", "never reach its peak", "below 100"),
    "group of one": ("[sampling]\nsamples_per_prompt = 1\n", "every advantage is 0", "at least 2"),
    "evaluation on train": ('[eval]\nsplit = "train"\n', "eval.split", "use 'eval'"),
    "half-written": ("[optim]\nlr = ", "is not valid TOML", "complete?"),
    "section as number": ("optim = 3\n", "optim: 3", "as a table"),
    "no such model": ('[model]\npath = "Qwen/Qwen3-0.6B"\n', "does not exist", "folder of a"),
    "no such rows": ('[task]\ntype = "rows"\npath = "no.jsonl"\n', "no.jsonl", "JSONL file"),
    "no such reward": ('[reward]\ntype = "composit"\n', "'composit'", "did you mean"),
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Work in an empty folder with an empty cache, which is part of what must not be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPLADDER_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def refused(home, capsys):
    """Return a function that runs a command and returns the lines of its refusal."""

    def run(*arguments):
        before = listing(home)
        code = run_command(arguments)
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        assert listing(home) == before
        lines = err.splitlines()
        assert lines
        for line in lines:
            assert line.startswith("error: SL")
            assert line.endswith(")"), f"no suggestion: {line}"
        return lines

    return run


def listing(folder):
    """Return every path with its time and content."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("case", SETTINGS)
def test_a_bad_setting_of_a_run(case, home, refused):
    text, what, fix = SETTINGS[case]
    (home / "run.toml").write_text(text)
    (line,) = refused("train", "run.toml", "--out", "out")
    assert what in line
    assert fix in line


@pytest.mark.parametrize("verb", ["train", "run"])
def test_every_fault_of_a_file_has_its_line(verb, home, refused):
    section = "" if verb == "train" else "base."
    text = f"[{section}optim]\nlr = -1\nbeta3 = 0.1\n[{section}budget]\nsteps = 0\n"
    (home / "s.toml").write_text(text)
    assert len(refused(verb, "s.toml")) == 3


@pytest.mark.parametrize("verb", ["train", "run", "plan"])
def test_a_file_that_cannot_be_read(verb, home, refused):
    (line,) = refused(verb, "gone.toml")
    assert "gone.toml: cannot be read: No such file" in line
    (home / "latin.toml").write_bytes(b'name = "\xe9"')
    (line,) = refused(verb, "latin.toml")
    assert "latin.toml: cannot be read: it is not UTF-8 text" in line


@pytest.mark.parametrize("verb", ["train", "rehearse", "plan"])
def test_a_setting_of_the_command_line(verb, refused):
    section = "" if verb == "train" else "base."
    (line,) = refused(verb, "--set", f"{section}optim.lr=fast")
    assert f"--set: {section}optim.lr: 'fast'" in line
    (line,) = refused(verb, "--set", "nothing")
    assert "not path=value" in line


@pytest.mark.parametrize("verb", ["train", "run"])
def test_an_eval_split_that_overlaps_training(verb, home, refused):
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(64)]
    write_rows(home / "train.jsonl", rows)
    write_rows(home / "eval.jsonl", [*rows[:3], {"prompt": "7+7=", "answer": "14"}])
    section = "" if verb == "train" else "base."
    (home / "s.toml").write_text(
        f'[{section}task]\ntype = "rows"\npath = "train.jsonl"\neval_path = "eval.jsonl"\n'
        f"holdout_share = 0.0\n[{section}eval]\nnum_prompts = 4\n"
    )
    (line,) = refused(verb, "s.toml")
    assert "3 prompts of the eval split are also trained on" in line


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("verb", ["train", "rehearse"])
def test_a_full_disk(verb, refused, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    (line,) = refused(verb)
    assert "1 MB are free" in line


def test_a_model_folder_without_a_model(home, refused):
    (home / "model").mkdir()
    (line,) = refused("train", "--model", "model")
    assert "has no config.json" in line
    (line,) = refused("rehearse", "--set", "axes.model=['ladder-x1', 'ladder-x8']")
    assert "did you mean" in line


def test_a_folder_of_another_version(home, refused):
    StudyStore(home / "study").write_plan({**plan_to_json(make_plan()), "format_version": 7})
    for verb in (("run", "study"), ("rehearse", "--out", "study"), ("report", "study")):
        (line,) = refused(*verb)
        assert "is a study of format 7, this is 1" in line
    RunStore(home / "run").begin({"run_id": RunSpec().run_id})
    header = json.loads((home / "run" / "run.json").read_text())
    (home / "run" / "run.json").write_text(json.dumps({**header, "format_version": 7}))
    (line,) = refused("train", "--out", "run")
    assert "is a run of format 7, this is 1" in line


def test_a_study_that_no_longer_matches_its_plan_lists_what_differs(home, refused):
    (home / "s.toml").write_text('name = "s"\n')
    StudyStore(home / "runs" / "s").write_plan(plan_to_json(make_plan(name="s")))
    (home / "s.toml").write_text(
        'name = "s"\nseeds = [1, 2, 3, 4]\n'
        "[axes]\nsamples_per_prompt = [16, 8]\n[base.optim]\nlr = 1e-3\n"
    )
    lines = refused("run", "s.toml")
    assert len(lines) == 3
    by_leaf = {line.split()[2].rstrip(":"): line for line in lines}
    assert set(by_leaf) == {"axes.samples_per_prompt", "base.optim.lr", "seeds"}
    assert "is 0.001, but the plan was made with 0.00025" in by_leaf["base.optim.lr"]
    fixed = by_leaf["axes.samples_per_prompt"]
    assert "is [16, 8], but the plan was made with [8, 4, 16]" in fixed
    assert "can never change inside a run" in fixed
    assert "--fresh" in fixed
    assert "--out" in fixed
    assert "never" not in by_leaf["base.optim.lr"]


def test_a_run_that_no_longer_matches_its_folder_lists_what_differs(home, refused):
    run = RunSpec()
    RunStore(home / "out").begin({"run_id": run.run_id, "settings": run.leaves()})
    changed = ("--set", "optim.lr=1e-3", "--set", "sampling.samples_per_prompt=16")
    rate, group = refused("train", "--out", "out", *changed)
    assert "optim.lr: is 0.001, but the run in out has 0.00025" in rate
    assert "sampling.samples_per_prompt: is 16, but" in group
    assert "can never change inside a run" in group


def test_a_damaged_plan(home, refused):
    folder = home / "study"
    StudyStore(folder).write_plan(plan_to_json(make_plan()))
    whole = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(whole[: len(whole) // 2])
    (line,) = refused("run", "study")
    assert "plan.json: is not valid JSON" in line
    (folder / "plan.json").write_text(whole.replace('"lr": 0.00025', '"lr": 0.0025', 1))
    (line,) = refused("run", "study")
    assert "was edited" in line


def test_the_same_seed_twice_is_the_same_run_and_another_seed_is_not(home, capsys):
    model = tiny_policy(home / "policy")
    settings = (
        "budget.steps=4",
        "optim.warmup_steps=0",
        "sampling.prompts_per_step=4",
        "sampling.max_new_tokens=8",
        "eval.every=2",
        "eval.num_prompts=8",
        "reward.weights.length=0.05",
    )
    sets = [word for setting in settings for word in ("--set", setting)]
    for out, seed in (("one", 1), ("two", 1), ("other", 2)):
        arguments = ["train", "--model", str(model), "--out", out, "--threads", "1", *sets]
        assert run_command([*arguments, "--set", f"seed={seed}"]) == 0, capsys.readouterr().err
    files = ("metrics.jsonl", "evals.jsonl")
    one, two, other = (
        [rows(home / out / name) for name in files] for out in ("one", "two", "other")
    )
    assert len(one[0]) == 4
    assert len(one[1]) == 3
    assert one == two
    assert all(mine != others for mine, others in zip(one, other, strict=True))


def rows(path):
    """Return a file's rows without what may differ from run to run."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "sys"} for row in found]
