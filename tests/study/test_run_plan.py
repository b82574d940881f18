"""Memory, tokens and operations of one run against sums done by hand."""

from pathlib import Path

import pytest

from stepladder.core.errors import PlanError
from stepladder.spec.ladder import LADDER
from stepladder.spec.load import load_spec
from stepladder.spec.run import RunSpec
from stepladder.study.model_size import check_model, model_shape, num_parameters
from stepladder.study.run_plan import plan_run

P = 1_345_423_360
COMPUTING = P - 32_000 * 2048


def preset(*sets):
    return load_spec(RunSpec, Path("report-a-medium"), sets).spec


def parts(planned):
    return {part.name: part.num_bytes for part in planned.memory}


def test_the_preset_by_hand():
    planned = plan_run(preset(), 16)
    assert planned.num_parameters == planned.num_trained == P
    assert planned.updates_per_step == 32
    assert planned.trained_tokens == 20_000 * 256 * 128
    assert planned.seen_tokens == 20_000 * 256 * 144
    cache = 4 * 256 * 144 * 24 * 2 * 2048
    layer = 4 * 2048 + 2 * 2048 + 2 * 2048 + 4 * 5504
    assert 4 * 8 * 144 * 24 * layer + 8 * 8 * 128 * 32_000 < cache
    assert parts(planned) == {
        "weights": 4 * P,
        "gradients": 4 * P,
        "optimizer": 8 * P,
        "critic": 16 * P,
        "reference": 4 * P,
        "healthy": 12 * P,
        "cache": cache,
    }
    assert planned.device_bytes == pytest.approx((48 * P + cache) / 0.7)
    # sampling, old log-probs, reference, values 2 each; policy and critic 6 each
    assert planned.total_flops == pytest.approx((4 * 2 + 2 * 6) * COMPUTING * planned.seen_tokens)


def test_what_is_switched_off_is_not_counted():
    planned = plan_run(
        preset("kl.cap_action=skip", "algorithm.critic=head", "optim.minibatch_size=256"), 16
    )
    assert {"critic", "healthy", "cache"}.isdisjoint(parts(planned))
    assert "activations" in parts(planned)
    names = {part.name for part in planned.flops}
    assert names == {"sampling", "training", "reference"}


def test_half_precision_keeps_master_weights_and_checkpointing_costs_a_forward_pass():
    run = preset("model.dtype=bfloat16", "model.gradient_checkpointing=true")
    planned = plan_run(run, 16)
    assert parts(planned)["weights"] == 2 * P
    assert parts(planned)["optimizer"] == 12 * P
    (training,) = [part for part in planned.flops if part.name == "training"]
    assert training.factor == 8


def test_checkpointing_lowers_activations():
    sets = ("optim.minibatch_size=256", "kl.cap=1.0")
    plain = parts(plan_run(preset(*sets), 16))["activations"]
    thin = parts(plan_run(preset(*sets, "model.gradient_checkpointing=true"), 16))
    assert thin.get("activations", 0) < plain


def test_adapters_are_counted():
    run = preset("model.lora={rank=8}", "algorithm.critic=head")
    planned = plan_run(run, 16)
    ends = 4 * (2048 + 2048) + 3 * (2048 + 5504)
    assert planned.num_trained == 24 * 8 * ends
    attention = plan_run(preset("model.lora={rank=8, targets='attention'}"), 16)
    assert attention.num_trained == 24 * 8 * 4 * (2048 + 2048)


def test_prompts_are_cut_at_the_limit():
    assert plan_run(preset("model.max_prompt_tokens=10"), 500).prompt_tokens == 10


def test_a_moving_reference_and_a_budget_keep_the_base_too():
    planned = plan_run(preset("kl.reference=ema", "kl.budget=2.0"), 16)
    assert parts(planned)["base"] == 4 * P
    assert "base" in {part.name for part in planned.flops}


def test_a_model_of_unknown_size_is_refused():
    with pytest.raises(PlanError, match="number of parameters"):
        plan_run(preset("model.path=nowhere"), 16)


@pytest.mark.parametrize("name", LADDER)
def test_shapes_of_the_ladder_count_as_the_ladder_does(name):
    shape = model_shape(name)
    assert shape is not None
    assert shape.num_parameters == LADDER[name].num_parameters


def test_a_shape_can_be_counted_and_not_trained():
    assert num_parameters("shape:2048x24x16") == P
    with pytest.raises(PlanError, match=r"no weights to train.*--model"):
        check_model("shape:2048x24x16", "model.path")
