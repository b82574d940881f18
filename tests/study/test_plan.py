import json
from collections import Counter

import pytest
from factories import make_costs, make_loaded, make_plan, make_study

from stepladder.core.errors import PlanError
from stepladder.study.plan import PlanErrors, require_same_study
from stepladder.study.plan import make_plan as plan_study
from stepladder.study.plan_json import plan_from_json, plan_to_json, to_toml


def test_the_default_rehearsal_has_22_cells_and_three_seeds_a_point():
    plan = make_plan()
    assert len(plan.cells) == 22
    points = Counter(
        (tuple(cell.axis_values.items()), cell.arm) for cell in plan.cells if cell.arm != "long"
    )
    assert set(points.values()) == {3}
    assert Counter(cell.arm for cell in plan.cells) == {
        "base": 3,
        "adjusted": 12,
        "unadjusted": 6,
        "long": 1,
    }


def test_the_same_inputs_give_the_same_plan():
    assert make_plan(costs=make_costs(), budget_s=300) == make_plan(
        costs=make_costs(), budget_s=300
    )


def test_json_round_trip_is_exact():
    plan = make_plan(costs=make_costs(), budget_s=300)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_an_edited_plan_is_refused():
    document = plan_to_json(make_plan())
    document["cells"][0]["run"]["optim"]["lr"] = 0.5
    with pytest.raises(PlanError, match="edited"):
        plan_from_json(document)


def test_another_format_version_is_refused():
    document = {**plan_to_json(make_plan()), "format_version": 99}
    with pytest.raises(PlanError, match="format version 99"):
        plan_from_json(document)


def test_a_plan_without_its_cells_is_refused():
    document = plan_to_json(make_plan())
    del document["cells"]
    with pytest.raises(PlanError, match="cannot be read"):
        plan_from_json(document)


def test_contrasts_are_stated_before_the_runs():
    assert make_plan().stated_contrasts == (
        "model:ladder-x2-ladder-x1:adjusted",
        "model:ladder-x4-ladder-x2:adjusted",
        "model:ladder-x2:adjusted-unadjusted",
        "model:ladder-x4:adjusted-unadjusted",
        "samples_per_prompt:8-4",
        "samples_per_prompt:16-8",
        "steps:0.5-0.25",
        "steps:1-0.5",
    )


def test_provenance_says_where_each_leaf_came_from():
    spec = make_study()
    loaded = make_loaded(spec)
    origin = {**loaded.provenance, "base.kl.coef": "study.toml", "base.eval.every": "--set"}
    plan = plan_study(type(loaded)(spec, origin, None))
    adjusted = next(c for c in plan.cells if c.axis_values["model"] == "ladder-x2")
    base = next(c for c in plan.cells if c.arm == "base")
    assert set(base.provenance) == set(base.run.leaves())
    assert base.provenance["kl.coef"] == "study.toml"
    assert base.provenance["eval.every"] == "--set"
    assert base.provenance["optim.eps"] == "default"
    assert adjusted.provenance["kl.coef"] == "rule reports.model.kl"
    assert adjusted.provenance["model.path"] == "axis model"


def test_the_control_runs_the_larger_model_with_untouched_settings():
    plan = make_plan()
    base = next(c for c in plan.cells if c.arm == "base")
    for cell in plan.cells:
        if cell.arm == "unadjusted":
            assert cell.run.optim == base.run.optim
            assert cell.run.kl == base.run.kl
            assert cell.run.model.path != base.run.model.path


def test_the_long_run_extends_the_step_axis():
    long = next(c for c in make_plan().cells if c.arm == "long")
    assert long.run.budget.steps == 200
    assert long.ratios == {"model": 1.0, "samples_per_prompt": 1.0, "steps": 2.0}
    assert long.axis_values["steps"] == "2"
    assert long.provenance["budget.steps"] == "axis steps"


def test_cell_ids_are_unique_and_name_the_content():
    plan = make_plan()
    assert len({cell.id for cell in plan.cells}) == len(plan.cells)
    for cell in plan.cells:
        assert cell.id.endswith(cell.run.run_id)


def test_another_study_in_the_folder_lists_every_difference():
    with pytest.raises(PlanErrors) as caught:
        require_same_study(
            make_study(),
            make_study(
                base={"optim": {"lr": 1e-4}},
                axes={"samples_per_prompt": [8, 16]},
                launch={"slots": 7},
            ),
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert "axes.samples_per_prompt" in lines[0]
    assert "base.optim.lr: is 0.0001, but the plan was made with 0.0002" in lines[1]
    assert all("--fresh" in line for line in lines)


def test_a_budget_without_costs_is_refused():
    with pytest.raises(PlanError, match="costs"):
        make_plan(budget_s=100)


def test_settings_written_as_toml_read_back_the_same():
    import tomllib

    spec = make_study(base={"task": {"type": "rows", "path": 'a "b"\\c', "names": ["x", "y"]}})
    assert make_study(**tomllib.loads(to_toml(spec.model_dump(mode="json")))) == spec


def test_folders_are_compared_by_their_parameters(tmp_path):
    config = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 32,
    }
    for name, layers in (("small", 1), ("large", 3)):
        (tmp_path / name).mkdir()
        text = json.dumps({**config, "num_hidden_layers": layers})
        (tmp_path / name / "config.json").write_text(text)
    models = [str(tmp_path / "small"), str(tmp_path / "large")]
    plan = make_plan(axes={"model": models, "samples_per_prompt": [8]})
    ratio = next(c for c in plan.cells if c.arm == "adjusted").ratios["model"]
    # embeddings 2 * 32 * 8, a layer 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8, final norm 8
    assert ratio == pytest.approx((512 + 3 * 656 + 8) / (512 + 656 + 8), rel=1e-3)
    assert plan.cells[0].id.startswith("small-base-s1-")
