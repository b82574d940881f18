"""The reward model: it learns what gold prefers, flips what it is told to, resumes exactly."""

import dataclasses
import random
from collections import Counter

import pytest
import tiny
import torch

from stepladder.core.control import CONTINUE
from stepladder.core.errors import SpecError
from stepladder.core.prompt import Split, make_prompt
from stepladder.core.rollout import SamplingParams
from stepladder.engine.load import load_policy
from stepladder.engine.preferences import (
    Preference,
    draw_preferences,
    from_tensors,
    pair_up,
    to_tensors,
    with_flips,
)
from stepladder.engine.reward_model import RewardModel, attach_reward_model
from stepladder.engine.run import execute_run
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.text import load_codec
from stepladder.engine.warmup import build_base_policy, demonstrations
from stepladder.rewards.compose import CompositeReward, Term
from stepladder.rewards.exact import ExactReward
from stepladder.rewards.learned import LearnedReward, LearnedSpec
from stepladder.rewards.score import score_groups
from stepladder.spec.ladder import LADDER, WarmupRecipe
from stepladder.spec.run import RunSpec

RUN = RunSpec.model_validate({"sampling": {"max_new_tokens": 6}})
PROMPTS = [make_prompt(f"{a}+{b}=", str(a + b), Split.TRAIN) for a in range(5) for b in range(5)]
SIZE = dataclasses.replace(
    LADDER["ladder-x1"], hidden_size=32, num_layers=1, num_heads=2, intermediate_size=64
)
RECIPE = dataclasses.replace(WarmupRecipe(), steps=300, corrupted_share=0.5)


class Constant:
    """Gold that prefers nothing."""

    def score(self, prompt, completion):
        return {"outcome": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a policy that adds one-digit numbers and is right half of the time."""
    path = tmp_path_factory.mktemp("base") / "policy"
    solved = [(p.text, f"<answer>{p.gold}</answer>", p.gold) for p in PROMPTS]
    build_base_policy(SIZE, demonstrations(solved * 4, RECIPE, 1), RECIPE, path)
    return path


@pytest.fixture(scope="module")
def sampler(folder):
    return LocalSampler(load_policy(folder, RUN.model, 1.0), load_codec(folder))


def learned(part=None, **settings):
    gold = CompositeReward([Term("outcome", 1.0, part or ExactReward())])
    small = {"pairs": 200, "epochs": 6, "lr": 3e-3, "refresh_every": 2, "refresh_pairs": 40}
    return LearnedReward(gold, LearnedSpec.model_validate({**small, **settings}))


def attach(folder, sampler, **settings):
    reward = learned(**settings)
    model = attach_reward_model(reward, RUN, folder, sampler, PROMPTS)
    assert model is not None and reward.model is model
    return reward, model


def drawn(sampler, seed=5):
    params = SamplingParams(max_new_tokens=6, seed=seed)
    return sampler.sample(PROMPTS[::3], [8] * len(PROMPTS[::3]), params)


def scored(reward, sampler, seed=5):
    return score_groups(reward, PROMPTS[::3], drawn(sampler, seed))


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters().items()}


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


@pytest.fixture(scope="module")
def trained(folder, sampler):
    return attach(folder, sampler)


def test_other_rewards_get_no_model(folder, sampler):
    gold = learned().gold
    assert attach_reward_model(gold, RUN, folder, sampler, PROMPTS) is None


def test_it_ranks_right_above_wrong_on_fresh_rollouts(trained, sampler):
    reward, _ = trained
    rollouts = [r for g in scored(reward, sampler, seed=99) for r in g.rollouts]
    right = [r.reward for r in rollouts if r.terms["gold"] == 1.0]
    wrong = [r.reward for r in rollouts if r.terms["gold"] == 0.0]
    assert len(right) > 5 and len(wrong) > 5
    wins = sum(a > b for a in right for b in wrong) / (len(right) * len(wrong))
    assert wins > 0.8
    assert all(r.reward == r.terms["learned"] for r in rollouts)
    assert all(r.terms["outcome"] == r.terms["gold"] for r in rollouts)


def test_the_first_step_tells_how_well_it_was_trained_once(folder, sampler):
    reward, model = attach(folder, sampler, refresh_every=0)
    told = model.after_step(1, scored(reward, sampler))
    assert told is not None and told.kind == "reward_model_trained"
    assert told.details["num_pairs"] == 200 and told.details["num_held_out"] == 25
    assert told.details["accuracy"] > 0.7
    assert model.after_step(2, scored(reward, sampler)) is None
    assert not [name for name in model.state() if name.startswith("newest")]


def test_scores_have_mean_0_and_std_1_on_the_first_preferences(trained):
    _, model = trained
    raw = model._raw_of_pairs(model.first).double()
    scores = (raw - model.mean) / model.std
    assert float(scores.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(scores.std(correction=0)) == pytest.approx(1.0, abs=1e-6)


def test_a_score_does_not_depend_on_its_batch(trained, sampler):
    _, model = trained
    completions = [c for samples in drawn(sampler) for c in samples]
    together = model.scores(completions)
    alone = [model.scores([completion])[0] for completion in completions]
    assert together == pytest.approx(alone, abs=1e-4)
    backwards = model.scores(completions[::-1])[::-1]
    assert together == pytest.approx(backwards, abs=1e-4)


def test_the_same_seed_gives_the_same_model_and_another_does_not(trained, folder, sampler):
    state = torch.get_rng_state()
    _, again = attach(folder, sampler)
    assert torch.equal(state, torch.get_rng_state())
    assert equal(weights(trained[1]), weights(again))
    _, other = attach(folder, sampler, seed=2)
    assert not equal(weights(again), weights(other))


def test_a_refresh_changes_the_weights_and_is_deterministic(folder, sampler):
    ends = []
    for _ in range(2):
        reward, model = attach(folder, sampler)
        before = weights(model)
        model.after_step(1, scored(reward, sampler, 1))
        assert equal(before, weights(model)) and 0 < len(model.newest) <= 40
        event = model.after_step(2, scored(reward, sampler, 2))
        assert event is not None and event.kind == "reward_model_refreshed"
        assert 0 <= event.details["accuracy_before"] <= 1
        assert not equal(before, weights(model)) and not model.newest
        assert model.json_state() == {"num_refreshes": 1}
        ends.append((weights(model), event))
    assert equal(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_a_refresh_without_preferences_waits(folder, sampler):
    _, model = attach(folder, sampler)
    model.after_step(1, [])
    before = weights(model)
    assert model.after_step(2, []) is None
    assert equal(before, weights(model)) and model.num_refreshes == 0


def test_resume_is_exact(folder, sampler):
    reward, model = attach(folder, sampler)
    model.after_step(1, scored(reward, sampler, 1))
    saved = {name: tensor.clone() for name, tensor in model.state().items()}
    values = dict(model.json_state())
    resumed_reward, resumed = attach(folder, sampler, epochs=1)
    resumed = RewardModel(resumed.backbone, model.spec)
    resumed_reward.model = resumed
    resumed.load(saved, values)
    assert resumed.scores(drawn(sampler)[0]) == model.scores(drawn(sampler)[0])
    groups = scored(reward, sampler, 2)
    assert model.after_step(2, groups) == resumed.after_step(2, groups)
    left, right = model.state(), resumed.state()
    assert equal(left, right)


def test_noise_flips_the_asked_share():
    preferences = [
        Preference(prompt_ids=(n,), chosen_ids=(1, n), rejected_ids=(2,)) for n in range(200)
    ]
    for share in (0.0, 0.1, 0.25, 0.5):
        noisy = with_flips(preferences, share, random.Random(3))
        flipped = [a.flipped == b for a, b in zip(preferences, noisy, strict=True)]
        kept = [a == b for a, b in zip(preferences, noisy, strict=True)]
        assert sum(flipped) == round(200 * share) and sum(kept) == 200 - sum(flipped)


def test_more_noise_makes_a_worse_model(folder, sampler, trained):
    _, noisy = attach(folder, sampler, noise=0.5)
    fresh = pair_up(scored(learned().gold, sampler, 99), random.Random(0), lambda r: r.reward)
    assert len(fresh) > 5
    assert trained[1].accuracy(fresh) > noisy.accuracy(fresh)


def test_pairs_leave_out_ties_and_faults_and_use_a_rollout_once(sampler):
    (group, *_) = scored(learned().gold, sampler)
    rollouts = [dataclasses.replace(r, reward=float(i % 2)) for i, r in enumerate(group.rollouts)]
    rollouts[0] = dataclasses.replace(rollouts[0], failure="broken")
    group = dataclasses.replace(group, rollouts=tuple(rollouts))
    found = pair_up([group], random.Random(0), lambda r: r.reward)
    assert len(found) == 3  # four of 1, three of 0 that no fault took away
    high = Counter(r.completion.token_ids for r in rollouts if r.reward == 1.0)
    low = Counter(r.completion.token_ids for r in rollouts[1:] if r.reward == 0.0)
    assert Counter(p.chosen_ids for p in found) <= high
    assert Counter(p.rejected_ids for p in found) <= low
    ties = dataclasses.replace(
        group, rollouts=tuple(dataclasses.replace(r, reward=0.5) for r in rollouts)
    )
    assert pair_up([ties], random.Random(0), lambda r: r.reward) == []


def test_gold_that_prefers_nothing_is_refused(folder, sampler):
    with pytest.raises(SpecError, match="SL0118"):
        attach(folder, sampler, part=Constant())


def test_preferences_survive_a_checkpoint(sampler):
    params = SamplingParams(max_new_tokens=6, seed=1)
    found = draw_preferences(learned().gold, sampler, PROMPTS, 20, params)
    assert len(found) == 20 and from_tensors(to_tensors(found)) == found
    assert from_tensors(to_tensors([])) == []


class Sums:
    """The task that the base policy was warmed up on."""

    name = "sums"
    outcome = "exact"

    def prompts(self, split):
        offset = list(Split).index(split)
        return [dataclasses.replace(p, split=split) for p in PROMPTS[offset::3]]

    def oracle(self, prompt):
        return f"<answer>{prompt.gold}</answer>"


def test_a_killed_run_goes_on_as_if_nothing_had_been(folder, tmp_path):
    run = tiny.tiny_run(sampling__max_new_tokens=6, optim__lr=1e-3)

    def execute(where, recorder, observer):
        end = execute_run(
            run,
            model_folder=folder,
            task=Sums(),
            reward=learned(),
            recorder=recorder,
            observer=observer,
            folder=where,
        )
        return end, recorder

    def die(metrics):
        if metrics.step == 5:
            raise KeyboardInterrupt
        return CONTINUE

    _, straight = execute(tmp_path / "straight", tiny.MemoryRecorder(), lambda _: CONTINUE)
    told = [(kind, step) for kind, step, _ in straight.events if kind.startswith("reward_model")]
    assert told[0] == ("reward_model_trained", 1)
    assert {kind for kind, _ in told[1:]} == {"reward_model_refreshed"}
    recorder = tiny.MemoryRecorder()
    with pytest.raises(KeyboardInterrupt):
        execute(tmp_path / "killed", recorder, die)
    _, recorder = execute(tmp_path / "killed", recorder, lambda _: CONTINUE)
    assert recorder.curve() == straight.curve()
    last = straight.steps[-1].values
    assert last["reward_mean"] == last["term_mean/learned"] != last["term_mean/gold"]
