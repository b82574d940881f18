"""What run.json says about conventions follows the settings."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from stepladder.spec.algorithm import ALGORITHM_NAMES
from stepladder.spec.conventions import LOG_RATIO_LIMIT, conventions
from stepladder.spec.run import RunSpec


def of(**sections):
    return conventions(RunSpec.model_validate(sections))


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_every_algorithm_has_plain_values(name):
    found = of(algorithm={"type": name})
    assert found["algorithm"] == name
    assert all(isinstance(value, str | int | float) for value in found.values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_group_conventions_follow_the_settings():
    found = of(algorithm={"ddof": 0, "std_floor": 0.0, "std_epsilon": 1e-8, "scale": "std"})
    assert (found["std_ddof"], found["std_floor"], found["std_epsilon"]) == (0, 0.0, 1e-8)
    assert of(algorithm={"type": "rloo"})["advantage_baseline"] == "group leave_one_out"


def test_the_cispo_cap_is_told_as_an_absolute_weight():
    assert of(algorithm={"type": "cispo"})["cispo_weight_cap"] == 5.0
    assert of()["cispo_weight_cap"] == "off"


def test_ppo_tells_gae_and_value_clip():
    found = of(algorithm={"type": "ppo", "gae_lambda": 0.9, "value_clip": None})
    assert (found["gae_lambda"], found["value_clip"]) == (0.9, "off")
    assert found["value_after_cut"] == "0"


def test_kl_is_off_when_nothing_measures_it():
    assert of(kl={"coef": 0.0, "cap": None})["kl"] == "off"
    assert "kl" not in of()
    assert of(kl={"placement": "reward"})["kl_gradient"].startswith("none")


def test_updates_and_constants_are_counted():
    found = of(algorithm={"type": "dr_grpo", "updates_per_batch": 2}, optim={"minibatch_size": 32})
    assert found["updates_per_step"] == 8
    assert found["aggregation_constant"] == 32


def test_the_clamp_is_the_engines():
    kl = pytest.importorskip("stepladder.engine.kl")
    assert kl.LOG_RATIO_LIMIT == LOG_RATIO_LIMIT


PAGE = (Path(__file__).parents[2] / "docs/algorithms.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_algorithm_with_its_own_clip():
    for name in ALGORITHM_NAMES:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE)
        spec = RunSpec.model_validate({"algorithm": {"type": name}}).algorithm
        if spec.objective == "clip":
            low, high = re.findall(r"clip ([0-9.e-]+) / ([0-9.e-]+)", row)[0]
            assert (float(low), float(high)) == (spec.clip_low, spec.clip_high)
        else:
            assert f"cap 1 + {spec.clip_high:g}" in row


def test_the_pages_example_loads():
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert RunSpec.model_validate(tomllib.loads(text)).algorithm.type == "dapo"
