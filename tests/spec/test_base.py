"""Specs as values: they round-trip, and their identity is their content."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stepladder.spec.base import flatten, with_leaf
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec

RATES = st.floats(1e-8, 0.9)
RUNS = st.builds(
    lambda name, seed, lr, coef, prompts, group, steps: RunSpec.model_validate(
        {
            "name": name,
            "seed": seed,
            "optim": {"lr": lr, "warmup_steps": 0},
            "kl": {"coef": coef},
            "sampling": {"prompts_per_step": prompts, "samples_per_prompt": group},
            "budget": {"steps": steps},
            "task": {"type": "rows", "path": name},
        }
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(0, 2**63 - 1),
    RATES,
    RATES,
    st.integers(1, 512),
    st.integers(2, 64),
    st.integers(1, 10**6),
)


@given(RUNS)
def test_a_run_round_trips_through_json(run):
    copy = RunSpec.model_validate(json.loads(json.dumps(run.model_dump(mode="json"))))
    assert copy == run
    assert copy.run_id == run.run_id


@given(RUNS)
def test_a_run_is_rebuilt_from_its_leaves(run):
    tree = {}
    for path, value in run.leaves().items():
        tree = with_leaf(tree, path, value)
    assert RunSpec.model_validate(tree) == run


@given(RUNS)
def test_a_study_round_trips(run):
    study = StudySpec(base=run, seeds=(3, 4))
    assert StudySpec.model_validate(study.model_dump(mode="json")) == study


def test_the_name_is_not_part_of_a_runs_identity():
    assert RunSpec(name="a").run_id == RunSpec(name="b").run_id
    assert RunSpec(seed=1).run_id != RunSpec(seed=2).run_id


def test_identity_of_the_defaults_does_not_depend_on_how_they_were_written():
    written = tomllib.loads(f"[optim]\nlr = {RunSpec().optim.lr!r}\n")
    assert RunSpec.model_validate(written).run_id == RunSpec().run_id


def test_a_spec_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        RunSpec().seed = 4


def test_with_leaf_leaves_the_original_alone():
    tree = {"a": {"b": 1}, "c": 2}
    assert with_leaf(tree, "a.d", 3) == {"a": {"b": 1, "d": 3}, "c": 2}
    assert tree == {"a": {"b": 1}, "c": 2}
    assert flatten({"a": {"b": 1, "e": {}}, "c": 2}) == {"a.b": 1, "a.e": {}, "c": 2}
