"""Belts act where they are needed: the KL cap, the KL budget, the entropy cliff, the alarms."""

import itertools

import pytest
import tiny

from stepladder.core.job import JobState
from stepladder.engine.guard import KlGuard

RUNAWAY = {
    "budget__steps": 40,
    "optim__lr": 0.05,
    "optim__warmup_steps": 0,
    "optim__max_skipped_steps": 40,
    "kl__coef": 1e-6,
    "entropy__coef": 0.0,
    "eval__every": 40,
    "checkpoint__every": 40,
}
CAP = 0.05


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.tiny_policy(tmp_path_factory.mktemp("policy"))


def kl_of(recorder):
    return [row.values["kl_ref"] for row in recorder.steps]


def test_without_a_cap_the_run_collapses(model, tmp_path):
    _, recorder = tiny.execute(tiny.tiny_run(kl__cap=None, **RUNAWAY), model, tmp_path)
    first, last = recorder.steps[0].values, recorder.steps[-1].values
    assert max(kl_of(recorder)) > 20 * CAP
    assert last["entropy"] < 0.1 * first["entropy"]
    assert last["distinct_share"] < 0.5 * first["distinct_share"]


@pytest.mark.parametrize("updates", [1, 2])
def test_the_cap_is_exceeded_by_one_update_at_most(model, tmp_path, updates, monkeypatch):
    seen = []
    check = KlGuard.check
    monkeypatch.setattr(KlGuard, "check", lambda guard, kl: (seen.append(kl), check(guard, kl))[1])
    run = tiny.tiny_run(
        kl__cap=CAP,
        algorithm={"type": "grpo", "updates_per_batch": updates},
        sampling__prompts_per_step=16,
        sampling__samples_per_prompt=8,
        **RUNAWAY,
    )
    end, recorder = tiny.execute(run, model, tmp_path)
    assert len(seen) > 40 * updates / 2
    over = [kl > CAP for kl in seen]
    assert any(kind == "kl_cap" for kind, _, _ in recorder.events)
    assert not any(a and b for a, b in itertools.pairwise(over))
    entropy = [row.values["entropy"] for row in recorder.steps]
    assert min(entropy) > 0.5 * entropy[0]
    assert end.state is JobState.DONE


@pytest.mark.parametrize("action", ["skip", "stop", "raise"])
def test_the_other_actions_of_the_cap(model, tmp_path, action):
    settings = RUNAWAY | {"optim__max_skipped_steps": 3}
    run = tiny.tiny_run(kl__cap=CAP, kl__cap_action=action, **settings)
    end, recorder = tiny.execute(run, model, tmp_path)
    first = next(step for kind, step, _ in recorder.events if kind == "kl_cap")
    if action == "stop":
        assert (end.state, end.final_step) == (JobState.STOPPED, first)
        assert "cap" in end.reason
    elif action == "skip":
        assert (end.state, end.final_step) == (JobState.STOPPED, first + 2)
        assert "kl_cap" in end.reason
    else:
        coefs = [row.values["kl_coef"] for row in recorder.steps]
        assert coefs[first] > coefs[first - 1]


def test_a_budget_ends_the_run_and_is_measured_from_the_base(model, tmp_path):
    changes = RUNAWAY | {"kl__reference": "refresh", "kl__refresh_every": 1}
    run = tiny.tiny_run(kl__cap=None, kl__budget=0.5, **changes)
    end, recorder = tiny.execute(run, model, tmp_path)
    last = recorder.steps[-1].values
    assert end.state is JobState.STOPPED
    assert last["kl_base"] > 0.5 > last["kl_ref"]
    assert all(row.values["kl_base"] <= 0.5 for row in recorder.steps[:-1])


@pytest.mark.parametrize("response", ["raise", "lower_lr", "none"])
def test_an_entropy_cliff_triggers_its_response(model, tmp_path, response):
    changes = RUNAWAY | {"optim__lr": 0.02}
    run = tiny.tiny_run(kl__cap=None, entropy__cliff_response=response, **changes)
    _, recorder = tiny.execute(run, model, tmp_path)
    step = next(step for kind, step, _ in recorder.events if kind == "entropy_cliff")
    before, after = recorder.steps[step - 1].values, recorder.steps[step].values
    coefs = before["entropy_coef"], after["entropy_coef"]
    scales = before["lr_scale"], after["lr_scale"]
    assert (coefs[1] > coefs[0]) == (response == "raise")
    assert (scales[1] < scales[0]) == (response == "lower_lr")


def test_a_gradient_alarm_is_an_event_and_lowers_the_rate(model, tmp_path):
    run = tiny.tiny_run(
        budget__steps=30, optim__alarm_factor=1.05, optim__alarm_response="lower_lr"
    )
    _, recorder = tiny.execute(run, model, tmp_path)
    step, details = next((s, d) for kind, s, d in recorder.events if kind == "gradient_alarm")
    assert details["grad_norm"] > 1.05 * details["average"]
    assert recorder.steps[step].values["lr_scale"] < recorder.steps[step - 1].values["lr_scale"]
