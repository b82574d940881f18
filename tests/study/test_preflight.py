from pathlib import Path

import pytest
from factories import make_loaded, make_prompt, make_study

from stepladder.core.errors import LabError, PlanError
from stepladder.core.prompt import Split
from stepladder.spec.load import Loaded
from stepladder.spec.run import RunSpec
from stepladder.study.plan import PlanErrors
from stepladder.study.preflight import check_disk, check_splits, preflight_run, preflight_study


class Leaky:
    """A task whose eval split holds a train prompt."""

    name, outcome = "leaky", "exact"

    def __init__(self, num_eval=200):
        self._num_eval = num_eval

    def prompts(self, split):
        if split is Split.TRAIN:
            return [make_prompt(f"t{i}", split=split) for i in range(64)]
        shared = [make_prompt("t3", split=split)] if split is Split.EVAL else []
        return shared + [
            make_prompt(f"{split.value}{i}", split=split) for i in range(self._num_eval)
        ]

    def oracle(self, prompt):
        return prompt.gold


def test_the_default_study_passes_and_nothing_is_written(tmp_path):
    preflight_study(make_loaded(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_all_faults_are_told_at_once(tmp_path):
    spec = make_study(
        axes={"model": ["ladder-x3", "nowhere/model"]}, base={"task": {"type": "arithmetik"}}
    )
    with pytest.raises(PlanErrors) as caught:
        preflight_study(make_loaded(spec), tmp_path)
    text = str(caught.value)
    assert len(caught.value.errors) == 3
    assert "did you mean" in text
    assert "'nowhere/model' does not exist" in text
    assert "did you mean 'arithmetic'?" in text
    assert caught.value.exit_code == 2


def test_no_disk_space_is_told_with_both_figures(tmp_path):
    with pytest.raises(PlanErrors, match=r"3 MB are free, about \d+ MB are needed"):
        preflight_study(make_loaded(), tmp_path, free_bytes=3_000_000)


def test_disk_is_asked_where_the_folder_will_be(tmp_path):
    check_disk(1, tmp_path / "not" / "yet" / "there")


def test_overlapping_splits_are_refused():
    with pytest.raises(PlanErrors, match="1 prompts of the eval split are also trained on"):
        check_splits(Leaky(), RunSpec(), "base.task")


def test_too_few_eval_prompts_are_refused():
    with pytest.raises(PlanErrors, match=r"eval.num_prompts is 128, but the eval split has 11"):
        check_splits(Leaky(num_eval=10), RunSpec(), "base.task")


def test_a_base_value_that_an_axis_would_replace_is_refused(tmp_path):
    spec = make_study(base={"sampling": {"samples_per_prompt": 16}})
    origin = {**make_loaded(spec).provenance, "base.sampling.samples_per_prompt": "study.toml"}
    with pytest.raises(PlanErrors, match="write 16 first in axes"):
        preflight_study(Loaded(spec, origin, None), tmp_path)


def test_sizes_must_rise(tmp_path):
    spec = make_study(axes={"model": ["ladder-x2", "ladder-x1"]})
    with pytest.raises(PlanErrors, match="sizes do not rise"):
        preflight_study(make_loaded(spec), tmp_path)


def test_a_model_folder_without_config_is_refused(tmp_path):
    run = RunSpec.model_validate({"model": {"path": str(tmp_path)}})
    with pytest.raises(PlanError, match=r"has no config\.json"):
        preflight_run(Loaded(run, {}, None), Path("runs/train"))


def test_every_fault_is_one_of_ours(tmp_path):
    spec = make_study(base={"reward": {"type": "nothing"}})
    with pytest.raises(LabError) as caught:
        preflight_study(make_loaded(spec), tmp_path)
    assert len(str(caught.value).splitlines()) == 1
