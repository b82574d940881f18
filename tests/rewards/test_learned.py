"""The learned reward without its model: terms, weights, one call a batch, faults, settings."""

import pytest

from stepladder.core.errors import SpecError
from stepladder.core.prompt import Split
from stepladder.rewards.learned import LearnedReward
from stepladder.rewards.registry import REWARDS, build_reward
from stepladder.rewards.score import score_groups, score_one
from stepladder.tasks.registry import build_task
from stepladder.testing.rewards import completion_of


@pytest.fixture(scope="module")
def task():
    return build_task({"type": "arithmetic", "num_train": 30, "num_eval": 20, "num_holdout": 5})


@pytest.fixture(scope="module")
def prompts(task):
    return task.prompts(Split.TRAIN)[:3]


class Lengths:
    """Scores by length, as a bad proxy would, and counts its calls."""

    def __init__(self):
        self.calls = []

    def scores(self, completions):
        self.calls.append(len(completions))
        return [float(len(completion.text)) for completion in completions]


class Faulty:
    """Answers as it is told."""

    def __init__(self, answer):
        self.answer = answer

    def scores(self, completions):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def broken(prompt, completion):
    raise KeyError("gone")


def learned(task, model, **settings):
    reward = build_reward({"type": "learned", **settings}, task)
    assert isinstance(reward, LearnedReward)
    reward.model = model
    return reward


def answers(task, prompts):
    return [
        [completion_of(p, text, sample=i) for i, text in enumerate((task.oracle(p), "longer " * 9))]
        for p in prompts
    ]


def test_the_proxy_alone_is_paid_and_gold_is_watched(task, prompts):
    reward = learned(task, Lengths())
    for group in score_groups(reward, prompts, answers(task, prompts)):
        right, wrong = group.rollouts
        assert right.terms["gold"] == pytest.approx(1.1) and wrong.terms["gold"] == 0.0
        assert (right.terms["outcome"], wrong.terms["outcome"]) == (1.0, 0.0)
        assert {"format", "length"} <= set(right.terms)
        assert right.reward == right.terms["learned"] == len(right.completion.text)
        assert wrong.reward == len(wrong.completion.text) > right.reward
        assert right.failure is None and right.missing == ()
    assert reward.weights["learned"] == 1.0
    assert {w for name, w in reward.weights.items() if name != "learned"} == {0.0}


def test_a_batch_is_one_call_and_equals_one_by_one(task, prompts):
    model = Lengths()
    reward = learned(task, model)
    groups = score_groups(reward, prompts, answers(task, prompts))
    assert model.calls == [6]
    for group in groups:
        for rollout in group.rollouts:
            assert score_one(reward, rollout.prompt, rollout.completion) == rollout
            terms = reward.score(rollout.prompt, rollout.completion)
            assert reward.total(terms) == rollout.reward


def test_groups_of_different_size_keep_their_order(task, prompts):
    completions = [
        [completion_of(p, "x" * (10 * i + j), sample=j) for j in range(size)]
        for i, (p, size) in enumerate(zip(prompts, (2, 0, 3), strict=True))
    ]
    groups = score_groups(learned(task, Lengths()), prompts, completions)
    assert [group.rewards for group in groups] == [(0.0, 1.0), (), (20.0, 21.0, 22.0)]
    assert [group.prompt for group in groups] == list(prompts)


def test_gold_settings_reach_gold(task, prompts):
    gold = {"type": "composite", "weights": {"outcome": 2.0, "format": 0.5}}
    reward = learned(task, Lengths(), gold=gold)
    rollout = score_one(reward, prompts[0], completion_of(prompts[0], task.oracle(prompts[0])))
    assert rollout.terms["gold"] == pytest.approx(2.5)


def test_a_fault_of_a_gold_part_costs_the_rollout(task, prompts):
    gold = {"type": "composite", "terms": [{"use": f"{__name__}:broken"}]}
    reward = learned(task, Lengths(), gold=gold)
    (group,) = score_groups(reward, prompts[:1], answers(task, prompts[:1]))
    for rollout in group.rollouts:
        assert rollout.reward == 0.0 and rollout.missing == ("broken",)
        assert rollout.failure and "KeyError" in rollout.failure
        assert "gold" not in rollout.terms and "outcome" in rollout.terms


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RuntimeError("no memory"), "no memory"),
        ([1.0, float("nan")], "gave nan"),
        ([1.0], "gave 1 scores to 2 completions"),
    ],
)
def test_a_fault_of_the_model_is_recorded_on_every_rollout(task, prompts, answer, why):
    (group,) = score_groups(learned(task, Faulty(answer)), prompts[:1], answers(task, prompts[:1]))
    assert len(group.rollouts) == 2
    for rollout in group.rollouts:
        assert rollout.reward == 0.0 and rollout.failure and why in rollout.failure


def test_without_a_model_it_says_so(task, prompts):
    with pytest.raises(AssertionError, match="inside a run"):
        learned(task, None).score(prompts[0], completion_of(prompts[0], "x"))


def test_it_is_registered():
    assert "learned" in REWARDS.names()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": 0.6}, "noise"),
        ({"nois": 0.1}, "did you mean 'noise'"),
        ({"pairs": 4}, "pairs"),
        ({"gold": {"type": "exact"}}, r"SL0116 reward\.gold: is 'exact'"),
        ({"gold": {"use": "my:reward"}}, r"SL0116 reward\.gold: is 'my:reward'"),
        ({"gold": {"weights": {"outcom": 1}}}, r"weights\.outcom: unknown setting"),
        ({"gold": {"terms": [{"type": "exact", "name": "learned"}]}}, "SL0117"),
    ],
)
def test_bad_settings_are_named(task, settings, message):
    with pytest.raises(SpecError, match=message):
        build_reward({"type": "learned", **settings}, task)
