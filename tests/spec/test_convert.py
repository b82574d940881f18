"""Report A's layout: recognised, mapped key by key, refused with a way out."""

from pathlib import Path

import pytest

from stepladder.core.errors import SpecError
from stepladder.spec.convert import REPORT_SECTIONS, convert_report, is_report_tree
from stepladder.spec.load import find_preset, load_spec, read_tree
from stepladder.spec.model_shape import planning_shape, read_shape_name
from stepladder.spec.run import RunSpec

PRESET = Path("report-a-medium")
AS_PRINTED = {
    "model": {"hidden_size": 2048, "num_layers": 24, "num_heads": 16},
    "rl": {
        "algorithm": "ppo",
        "clip_ratio": 0.2,
        "kl_coef_init": 0.02,
        "entropy_coef": 0.01,
        "gamma": 0.99,
        "gae_lambda": 0.95,
    },
    "rollout": {"num_envs": 256, "rollout_steps": 128, "batch_size": 1024},
    "train": {"lr": 1.5e-5, "warmup_steps": 100, "total_steps": 20000},
}
OURS = {
    "model.path": "shape:2048x24x16",
    "algorithm.type": "ppo",
    "algorithm.clip_low": 0.2,
    "algorithm.clip_high": 0.2,
    "algorithm.gamma": 0.99,
    "algorithm.gae_lambda": 0.95,
    "kl.coef": 0.02,
    "kl.controller": "adaptive",
    "entropy.coef": 0.01,
    "sampling.prompts_per_step": 256,
    "sampling.samples_per_prompt": 1,
    "sampling.max_new_tokens": 128,
    "optim.minibatch_size": 8,
    "optim.lr": 1.5e-5,
    "optim.warmup_steps": 100,
    "budget.steps": 20000,
}


def changed(**sections):
    return {name: {**values, **sections.get(name, {})} for name, values in AS_PRINTED.items()} | {
        name: values for name, values in sections.items() if name not in AS_PRINTED
    }


def test_the_preset_is_as_the_report_prints_it():
    assert read_tree(find_preset(PRESET)) == AS_PRINTED


def test_the_preset_loads_and_every_leaf_says_its_file():
    loaded = load_spec(RunSpec, PRESET)
    leaves = loaded.spec.leaves()
    assert {path: leaves[path] for path in OURS} == OURS
    named = {path for path, origin in loaded.provenance.items() if origin != "default"}
    assert named == set(OURS)
    assert {loaded.provenance[path] for path in OURS} == {"report-a-medium.yaml"}
    assert loaded.folder is None


def test_set_comes_after_the_conversion():
    loaded = load_spec(RunSpec, PRESET, ["optim.lr=1e-5", "model.path=ladder-x1"])
    assert (loaded.spec.optim.lr, loaded.spec.model.path) == (1e-5, "ladder-x1")
    assert loaded.provenance["optim.lr"] == "--set"


def test_every_key_of_the_report_is_mapped():
    rows = convert_report(AS_PRINTED, "x").rows
    known = {f"{section}.{key}" for section, keys in REPORT_SECTIONS.items() for key in keys}
    assert {row.theirs for row in rows} == known
    assert {row.ours: row.our_value for row in rows} == OURS
    assert all(bool(row.note) == bool(row.note_zh) for row in rows)


def test_our_own_layout_is_left_alone():
    assert not is_report_tree({"model": {"path": "ladder-x1"}, "optim": {"lr": 1e-4}})
    assert not is_report_tree({"train": {"lr": 1e-4}})
    assert is_report_tree({"rl": {}, "train": {"lr": 1e-4}})


@pytest.mark.parametrize(
    ("sections", "key", "says"),
    [
        ({"rl": {"clip_ration": 0.1}}, "rl.clip_ration", "did you mean 'rl.clip_ratio'"),
        ({"rollout": {"zzz": 1}}, "rollout.zzz", "known here: num_envs"),
        ({"optim": {"lr": 1e-4}}, "optim.lr", "did you mean 'train.lr'"),
        ({"rollout": {"batch_size": 1000}}, "rollout.batch_size", "multiple of 128"),
        ({"rollout": {"num_envs": 2.5}}, "rollout.num_envs", "whole number above 0"),
        ({"rollout": {"rollout_steps": 0}}, "rollout.rollout_steps", "whole number above 0"),
        ({"model": {"num_heads": 15}}, "model.num_heads", "choose a divisor"),
    ],
)
def test_bad_keys_and_values_are_told(sections, key, says):
    with pytest.raises(SpecError) as caught:
        convert_report(changed(**sections), "a.yaml")
    (line,) = str(caught.value).splitlines()
    assert f"a.yaml: {key}: " in line
    assert says in line


def test_parts_may_be_missing_but_a_shape_may_not_be_half():
    tree = {"rl": {"algorithm": "ppo"}, "train": {"lr": 1e-5}}
    assert convert_report(tree, "x").tree == {"algorithm": {"type": "ppo"}, "optim": {"lr": 1e-5}}
    with pytest.raises(SpecError, match=r"model\.num_layers: is required"):
        convert_report({**tree, "model": {"hidden_size": 64}}, "x")
    with pytest.raises(SpecError, match=r"set rollout\.rollout_steps"):
        convert_report({**tree, "rollout": {"batch_size": 64}}, "x")


def test_a_planning_shape_is_counted_as_a_llama():
    shape = planning_shape(2048, 24, 16)
    assert shape.intermediate_size == 5504
    layer = 4 * 2048 * 2048 + 3 * 2048 * 5504 + 2 * 2048
    assert shape.num_parameters == 2 * 32_000 * 2048 + 24 * layer + 2048 == 1_345_423_360
    assert read_shape_name("shape:2048x24x16") == shape
    assert read_shape_name("ladder-x1") is None
    assert read_shape_name("shape:0x24x16") is None


def test_a_file_of_the_presets_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("report-a-medium").write_text("seed = 4\n", encoding="utf-8")
    assert load_spec(RunSpec, PRESET).spec.seed == 4
    assert find_preset(Path("somewhere/report-a-medium")) is None
