"""Whole runs: determinism, resume, damage, actions, refusals."""

import json

import pytest
import tiny
import torch
from safetensors.torch import load_file

from stepladder.core.control import Action, ActionKind, Knobs, stop
from stepladder.core.errors import SpecError
from stepladder.core.job import JobState


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.tiny_policy(tmp_path_factory.mktemp("policy"))


def weights(folder):
    return load_file(folder / "policy" / "model.safetensors")


def assert_same_weights(first, second):
    first, second = weights(first), weights(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def stop_at(step, *, resumable=False):
    def observe(metrics):
        return stop("enough", resumable=resumable) if metrics.step == step else Action()

    return observe


def test_a_run_ends_done_and_learns(model, tmp_path):
    end, recorder = tiny.execute(
        tiny.tiny_run(budget__steps=40, kl__coef=0.0, kl__cap=None), model, tmp_path
    )
    assert (end.state, end.reason, end.final_step) == (JobState.DONE, "", 40)
    assert [row.step for row in recorder.steps] == list(range(1, 41))
    assert [row.step for row in recorder.evals] == [0, *range(4, 41, 4)]
    assert recorder.evals[-1].values["eval/pass@1"] > recorder.evals[0].values["eval/pass@1"]
    assert recorder.steps[-1].num_samples == 40 * 16


def test_the_same_seed_twice_is_identical_and_another_differs(model, tmp_path):
    run = tiny.tiny_run()
    _, first = tiny.execute(run, model, tmp_path / "a")
    _, second = tiny.execute(run, model, tmp_path / "b")
    _, third = tiny.execute(tiny.tiny_run(seed=2), model, tmp_path / "c")
    assert first.curve() == second.curve()
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert first.curve() != third.curve()


def test_global_random_state_is_neither_read_nor_moved(model, tmp_path):
    torch.manual_seed(5)
    _, first = tiny.execute(tiny.tiny_run(), model, tmp_path / "a")
    torch.manual_seed(6)
    state = torch.get_rng_state()
    _, second = tiny.execute(tiny.tiny_run(), model, tmp_path / "b")
    assert torch.equal(state, torch.get_rng_state())
    assert first.curve() == second.curve()


SETTINGS = {
    "one update": {},
    "several updates": {"optim__minibatch_size": 8, "optim__schedule": "cosine"},
    "kl in the reward": {"kl__placement": "reward", "kl__estimator": "k1"},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("killed_at", [3, 4, 5])
def test_resume_is_bit_exact(model, tmp_path, changes, killed_at):
    run = tiny.tiny_run(budget__steps=7, **changes)
    _, straight = tiny.execute(run, model, tmp_path / "straight")
    recorder = tiny.MemoryRecorder()

    def die(metrics):
        if metrics.step == killed_at:
            raise KeyboardInterrupt
        return Action()

    with pytest.raises(KeyboardInterrupt):
        tiny.execute(run, model, tmp_path / "resumed", recorder, die)
    end, recorder = tiny.execute(run, model, tmp_path / "resumed", recorder)
    assert end.state is JobState.DONE
    assert recorder.curve() == straight.curve()
    assert_same_weights(tmp_path / "straight", tmp_path / "resumed")


def test_a_finished_run_does_nothing_again(model, tmp_path):
    run = tiny.tiny_run()
    _, recorder = tiny.execute(run, model, tmp_path)
    rows = recorder.curve()
    end, recorder = tiny.execute(run, model, tmp_path, recorder)
    assert (end.state, end.final_step) == (JobState.DONE, 6)
    assert recorder.curve() == rows


def test_an_observer_stops_a_run_which_then_goes_on_exactly(model, tmp_path):
    run = tiny.tiny_run()
    end, recorder = tiny.execute(run, model, tmp_path / "a", observer=stop_at(4, resumable=True))
    assert (end.state, end.reason, end.final_step) == (JobState.STOPPED, "enough", 4)
    assert ("stop", 4, {"reason": "enough"}) in recorder.events
    end, recorder = tiny.execute(run, model, tmp_path / "a", recorder)
    _, straight = tiny.execute(run, model, tmp_path / "b")
    assert recorder.curve() == straight.curve()


@pytest.mark.parametrize("step", [4, 6])
def test_a_run_stopped_for_good_stays_stopped_when_its_end_was_not_told(model, tmp_path, step):
    run = tiny.tiny_run()
    first, recorder = tiny.execute(run, model, tmp_path, observer=stop_at(step))
    rows = recorder.curve()
    again, recorder = tiny.execute(run, model, tmp_path, recorder)
    assert again == first
    assert (again.state, again.reason, again.final_step) == (JobState.STOPPED, "enough", step)
    assert recorder.curve() == rows


def test_a_stop_at_step_0_trains_nothing(model, tmp_path):
    end, recorder = tiny.execute(tiny.tiny_run(), model, tmp_path, observer=stop_at(0))
    assert (end.state, end.final_step, recorder.steps) == (JobState.STOPPED, 0, [])
    assert len(recorder.evals) == 1


def test_a_deadline_stops_after_a_step(model, tmp_path):
    end, _ = tiny.execute(tiny.tiny_run(), model, tmp_path, deadline=0.0)
    assert (end.state, end.reason, end.final_step) == (JobState.STOPPED, "deadline reached", 1)


def test_knobs_survive_a_resume(model, tmp_path):
    knobs = Knobs(kl_coef=0.5, entropy_coef=0.0, lr_scale=0.5)

    def observe(metrics):
        if metrics.step == 1:
            return Action(kind=ActionKind.SET_KNOBS, knobs=knobs, reason="test")
        return stop("pause", resumable=True) if metrics.step == 3 else Action()

    run = tiny.tiny_run()
    _, recorder = tiny.execute(run, model, tmp_path, observer=observe)
    _, recorder = tiny.execute(run, model, tmp_path, recorder)
    assert [row.values["kl_coef"] for row in recorder.steps] == [0.02] + [0.5] * 5
    assert recorder.steps[-1].values["lr"] == pytest.approx(2.5e-3)


def test_restore_takes_up_the_last_checkpoint_and_goes_on(model, tmp_path):
    def observe(metrics):
        return Action(kind=ActionKind.RESTORE) if metrics.step in (1, 4) else Action()

    end, recorder = tiny.execute(tiny.tiny_run(), model, tmp_path, observer=observe)
    assert end.final_step == 6
    assert [e[:2] for e in recorder.events] == [
        ("restore", 1),
        ("restore_impossible", 1),
        ("restore", 4),
    ]


def damage_file(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "flipped weight": lambda folder: damage_file(folder / "weights.safetensors"),
    "flipped moment": lambda folder: damage_file(folder / "optimizer.safetensors"),
    "cut file": lambda folder: (folder / "weights.safetensors").write_bytes(b"\x00" * 20),
    "lost file": lambda folder: (folder / "optimizer.safetensors").unlink(),
    "half-written state": lambda folder: (folder / "state.json").write_text('{"format": 1'),
    "edited state": lambda folder: (folder / "state.json").write_text(
        (folder / "state.json").read_text().replace('"num_samples": 96', '"num_samples": 97')
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(model, tmp_path, damage):
    run = tiny.tiny_run()
    _, recorder = tiny.execute(run, model, tmp_path)
    rows = recorder.curve()
    damage(tmp_path / "checkpoints" / "step-000006")
    _, recorder = tiny.execute(run, model, tmp_path, recorder)
    kind, step, details = recorder.events[0]
    assert (kind, step) == ("checkpoint_damaged", 3)
    assert "step-000006" in details["reason"]
    assert recorder.curve() == rows


def test_when_every_checkpoint_is_damaged_the_run_starts_anew(model, tmp_path):
    run = tiny.tiny_run()
    _, recorder = tiny.execute(run, model, tmp_path)
    rows = recorder.curve()
    for folder in (tmp_path / "checkpoints").iterdir():
        damage_file(folder / "weights.safetensors")
    _, recorder = tiny.execute(run, model, tmp_path, recorder)
    assert recorder.curve() == rows
    assert [event[0] for event in recorder.events] == ["checkpoint_damaged"] * 2


def test_what_a_killed_save_left_is_swept(model, tmp_path):
    left = tmp_path / "checkpoints" / ".step-000003.1"
    left.mkdir(parents=True)
    tiny.execute(tiny.tiny_run(), model, tmp_path)
    assert sorted(p.name for p in left.parent.iterdir()) == ["step-000003", "step-000006"]


def test_checkpoints_hold_no_pickle(model, tmp_path):
    tiny.execute(tiny.tiny_run(), model, tmp_path)
    names = {p.name for p in (tmp_path / "checkpoints" / "step-000006").iterdir()}
    stems = ("weights", "optimizer", "random", "healthy_weights", "healthy_optimizer")
    assert names == {"state.json", *(f"{stem}.safetensors" for stem in stems)}
    state = json.loads((tmp_path / "checkpoints" / "step-000006" / "state.json").read_text())
    assert (state["step"], state["loop"]["num_samples"]) == (6, 96)


def test_the_final_policy_loads_in_transformers(model, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny.execute(tiny.tiny_run(), model, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    assert loaded(torch.tensor([tokenizer("12=")["input_ids"]])).logits.shape[-1] == len(tokenizer)


def test_long_prompts_are_refused_before_anything_is_written(model, tmp_path):
    run = tiny.tiny_run(model__max_prompt_tokens=4)
    with pytest.raises(SpecError, match=r"prompts are longer than 4 tokens.*max_prompt_tokens|max"):
        tiny.execute(run, model, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_no_reference_is_built_without_a_kl_coefficient(model, tmp_path, monkeypatch):
    import stepladder.engine.reference as reference

    def refuse(*args, **settings):
        raise AssertionError("a reference was stored")

    monkeypatch.setattr(reference, "StoredReference", refuse)
    _, recorder = tiny.execute(tiny.tiny_run(kl__coef=0.0, kl__cap=None), model, tmp_path)
    assert "kl_ref" not in recorder.steps[0].values


def test_system_values_stay_apart(model, tmp_path):
    _, recorder = tiny.execute(tiny.tiny_run(), model, tmp_path)
    row = recorder.steps[3]
    assert {"time_step_s", "time_rollout_s", "time_train_s", "memory_bytes"} <= set(row.system)
    assert not set(row.values) & set(row.system)
    assert row.values["eval/pass@1"] == recorder.evals[1].values["eval/pass@1"]


def test_texts_can_be_left_out_of_dumps(model, tmp_path):
    run = tiny.tiny_run(record={"rollouts_every": 2, "rollouts_per_dump": 5, "store_text": False})
    _, recorder = tiny.execute(run, model, tmp_path)
    assert [step for step, _ in recorder.dumps] == [2, 4, 6]
    assert all(len(groups) == 2 for _, groups in recorder.dumps)
    group = recorder.dumps[0][1][0]
    assert (group.prompt.text, group.rollouts[0].completion.text) == ("", "")


def test_a_skipped_update_is_counted_and_leaves_the_weights(model, tmp_path, monkeypatch):
    from stepladder.engine.algo.group import Group

    original = Group.loss

    def poisoned(self, *args):
        terms = original(self, *args)
        return type(terms)(terms.loss * float("nan"), terms.sums, terms.ratio_max)

    monkeypatch.setattr(Group, "loss", poisoned)
    end, recorder = tiny.execute(tiny.tiny_run(), model, tmp_path)
    assert end.reason == "no finite gradient in 5 steps in a row"
    assert recorder.events[0] == ("update_skipped", 1, {"num_updates": 1, "reason": "non_finite"})
    assert recorder.steps[0].values["updates"] == 0
    assert "grad_norm" in recorder.steps[0].non_finite
    before, after = load_file(model / "model.safetensors"), weights(tmp_path)
    assert all(torch.equal(before[name], after[name]) for name in before)
    rows = list(recorder.steps)
    assert tiny.execute(tiny.tiny_run(), model, tmp_path, recorder)[0] == end
    assert recorder.steps == rows
