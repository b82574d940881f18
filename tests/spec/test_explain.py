"""Bad settings: one line each, with the right key and a way out."""

import pytest

from stepladder.core.errors import SpecError
from stepladder.spec.algorithm import GrpoSpec, PpoSpec
from stepladder.spec.explain import known_paths
from stepladder.spec.load import load_spec
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec

BAD_RUN = {
    "unknown key": (
        "[optim]\nlearning_rat = 1e-4",
        "optim.learning_rat",
        "did you mean 'optim.lr'?",
    ),
    "unknown at top": ("learning_rat = 1e-4", "learning_rat", "did you mean 'optim.lr'?"),
    "misspelt section": ("[optimm]\nlr = 1e-4", "optimm", "did you mean the section 'optim'?"),
    "text": ('[optim]\nlr = "fast"', "optim.lr", "write a plain number, such as 1e-4"),
    "negative": ("[optim]\nlr = -1e-4", "optim.lr", "choose a value inside the limit"),
    "zero": ("[optim]\nlr = 0", "optim.lr", "choose a value inside the limit"),
    "nan": ("[optim]\nlr = nan", "optim.lr", "NaN and infinity cannot be used"),
    "infinite": ("[kl]\ncoef = inf", "kl.coef", "NaN and infinity cannot be used"),
    "no samples": ("[sampling]\nprompts_per_step = 0", "sampling.prompts_per_step", "inside the"),
    "group of one": (
        "[sampling]\nsamples_per_prompt = 1",
        "sampling.samples_per_prompt",
        "at least 2",
    ),
    "batch not divisible": ("[optim]\nminibatch_size = 100", "optim.minibatch_size", "such as 128"),
    "microbatch": (
        "[optim]\nminibatch_size = 128\nmicrobatch_size = 48",
        "optim.microbatch_size",
        "such as 32",
    ),
    "long warm-up": ("[optim]\nwarmup_steps = 100", "optim.warmup_steps", "set it below 100"),
    "eval on train": ('[eval]\nsplit = "train"', "eval.split", "use 'eval'"),
    "nucleus": ("[sampling]\ntop_p = 0.9", "sampling.top_p", "leave it at 1.0"),
    "unknown algorithm": ('[algorithm]\ntype = "grop"', "algorithm.type", "mean 'grpo'?"),
    "algorithm as a number": ("[algorithm]\ntype = 3", "algorithm.type", "known are grpo"),
    "algorithm as a word": ('algorithm = "ppo"', "algorithm", "write it as a table"),
    "key of the default algorithm": (
        "[algorithm]\nclip_lo = 0.1",
        "algorithm.clip_lo",
        "did you mean 'algorithm.clip_low'?",
    ),
    "value of the chosen algorithm": (
        '[algorithm]\ntype = "ppo"\ngae_lambda = 2',
        "algorithm.gae_lambda",
        "inside the limit",
    ),
    "key of another algorithm": (
        '[algorithm]\ntype = "ppo"\nbaseline = "mean"',
        "algorithm.baseline",
        "is not a setting of 'ppo'",
    ),
    "inside an optional section": (
        "[model.lora]\nrnk = 3",
        "model.lora.rnk",
        "did you mean 'model.lora.rank'?",
    ),
}
BAD_STUDY = {
    "group of one": (
        "[axes]\nsamples_per_prompt = [8, 1]",
        "axes.samples_per_prompt",
        "use 2 or more",
    ),
    "seed twice": ("seeds = [1, 1, 2]", "seeds", "name each value once"),
    "no model": ("[axes]\nmodel = []", "axes.model", "give at least one value"),
    "share": ("[axes]\nsteps = [0.5, 1.5]", "axes.steps", "write shares such as 0.5"),
    "too far": ("[target]\nratio = 8", "target.ratio", "use at most 4"),
    "inside base": ("[base.optim]\nlearning_rat = 1", "base.optim.learning_rat", "'base.optim.lr'"),
    "union inside base": (
        '[base.algorithm]\ntype = "rloo"\ngamma = 0.9',
        "base.algorithm.gamma",
        "reinforce, ppo",
    ),
    "base run": ("[base.optim]\nwarmup_steps = 900", "base.optim.warmup_steps", "set it below"),
}


def refusal(cls, text, folder):
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(cls, path)
    assert caught.value.exit_code == 2
    assert [entry.name for entry in folder.iterdir()] == ["settings.toml"], "something was written"
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("text", "key", "fix"), BAD_RUN.values(), ids=BAD_RUN.keys())
def test_bad_run_settings_give_one_line_with_key_and_way_out(text, key, fix, tmp_path):
    (line,) = refusal(RunSpec, text, tmp_path)
    assert f"settings.toml: {key}: " in line
    assert fix in line


@pytest.mark.parametrize(("text", "key", "fix"), BAD_STUDY.values(), ids=BAD_STUDY.keys())
def test_bad_study_settings_give_one_line_with_key_and_way_out(text, key, fix, tmp_path):
    (line,) = refusal(StudySpec, text, tmp_path)
    assert f"settings.toml: {key}: " in line
    assert fix in line


def test_all_errors_are_told_at_once(tmp_path):
    lines = refusal(RunSpec, '[optim]\nlr = -1\n[kl]\ncoef = "a"\n[eval]\nevry = 3\n', tmp_path)
    assert len(lines) == 3


def test_a_bad_set_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"with --set: optim\.lr: -1 is refused"):
        load_spec(RunSpec, sets=["optim.lr=-1"])


def test_settings_that_contradict_each_other_are_all_told(tmp_path):
    lines = refusal(RunSpec, "[optim]\nwarmup_steps = 500\n[sampling]\ntop_p = 0.5\n", tmp_path)
    assert len(lines) == 2


def test_changing_the_algorithm_says_which_keys_of_the_old_one_are_in_the_way(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[algorithm]\nbaseline = "leave_one_out"\nddof = 0\nclip_low = 0.1\n')
    assert load_spec(RunSpec, path).spec.algorithm.type == "grpo"
    with pytest.raises(SpecError) as caught:
        load_spec(RunSpec, path, ["algorithm.type=ppo"])
    first, second = str(caught.value).splitlines()
    assert "algorithm.baseline: is not a setting of 'ppo'" in first
    assert "algorithm.ddof" in second
    assert "remove it, or set algorithm.type to one that has it: grpo, dr_grpo" in first


def test_every_leaf_of_a_union_is_known_once():
    paths = known_paths(RunSpec)
    assert len(paths) == len(set(paths))
    assert {"algorithm.baseline", "algorithm.gae_lambda", "algorithm.statistics"} <= set(paths)
    assert "algorithm" not in paths
    only = known_paths(RunSpec, chosen={"algorithm": PpoSpec})
    assert "algorithm.gae_lambda" in only
    assert "algorithm.ddof" not in only
    assert {f"algorithm.{name}" for name in GrpoSpec.model_fields} <= set(paths)
