"""The composite reward: raw terms kept, weights, terms of strangers, faults recorded."""

from pathlib import Path

import pytest

from stepladder.core.answer import full_marks
from stepladder.core.errors import PluginError, SpecError
from stepladder.core.prompt import Split
from stepladder.rewards.base import REWARDS
from stepladder.rewards.registry import build_reward
from stepladder.rewards.score import score_groups
from stepladder.tasks.registry import build_task
from stepladder.testing.rewards import check_reward, completion_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_reward"


@pytest.fixture(scope="module")
def task():
    return build_task({"type": "arithmetic", "num_train": 60, "num_eval": 20, "num_holdout": 5})


@pytest.fixture(scope="module")
def prompt(task):
    return task.prompts(Split.TRAIN)[0]


def broken(prompt, completion):
    raise KeyError("gone")


def texty(prompt, completion):
    return "false"


def infinite(prompt, completion):
    return float("inf")


def several(prompt, completion):
    return {"a": 1.0, "b": 2}


class Scaled:
    """A stranger's reward with a setting."""

    def __init__(self, factor):
        self.factor = factor

    def score(self, prompt, completion):
        return {"scaled": self.factor * len(completion.token_ids)}


def test_defaults(task, prompt):
    reward = build_reward({"type": "composite"}, task)
    assert reward.weights == {"outcome": 1.0, "format": 0.1, "length": 0.0}
    terms = reward.score(prompt, completion_of(prompt, task.oracle(prompt)))
    assert (terms["outcome"], terms["format"]) == (1.0, 1.0)
    assert -1 <= terms["length"] < 0
    assert reward.total(terms) == pytest.approx(1.1)
    assert build_reward({}, task).weights == reward.weights


def test_weights_are_merged_with_the_defaults(task, prompt):
    reward = build_reward(
        {"type": "composite", "weights": {"length": 0.5}, "length_tokens": 8}, task
    )
    completion = completion_of(prompt, "abcd")
    terms = reward.score(prompt, completion)
    assert terms == {"outcome": 0.0, "format": 0.0, "length": -0.5}
    assert reward.total(terms) == pytest.approx(-0.25)


def test_answer_without_think_is_right_but_not_well_formed(task, prompt):
    reward = build_reward({"type": "composite"}, task)
    terms = reward.score(prompt, completion_of(prompt, f"<answer>{prompt.gold}</answer>"))
    assert (terms["outcome"], terms["format"]) == (1.0, 0.0)


def test_terms_of_strangers(task, prompt):
    terms = [{"use": "my_rewards:shows_work", "weight": 0.5}, {"use": "my_rewards:brief"}]
    mapping = {"type": "composite", "terms": terms}
    reward = build_reward(mapping, task, folder=EXAMPLE)
    assert reward.weights["shows_work"] == 0.5 and reward.weights["brief"] == 1.0
    raw = reward.score(prompt, completion_of(prompt, task.oracle(prompt)))
    assert raw["shows_work"] == 1.0
    check_reward(reward, task, num_prompts=10)


def test_a_strangers_reward_is_paid_alone_and_the_rest_is_watched(task, prompt):
    reward = build_reward({"use": f"{__name__}:Scaled", "factor": 0.5}, task)
    terms = reward.score(prompt, completion_of(prompt, full_marks("", prompt.gold)))
    assert terms["outcome"] == 1.0 and terms["format"] == 1.0
    assert reward.total(terms) == terms["Scaled"] == 0.5 * len(full_marks("", prompt.gold))


def test_a_reward_of_several_terms_keeps_them_apart(task, prompt):
    reward = build_reward({"use": f"{__name__}:several", "weight": 2}, task)
    terms = reward.score(prompt, completion_of(prompt, ""))
    assert (terms["several/a"], terms["several/b"]) == (1.0, 2.0)
    assert reward.total(terms) == 6.0


@pytest.mark.parametrize(
    ("function", "why"),
    [("broken", "KeyError: 'gone'"), ("texty", "gave a str"), ("infinite", "gave inf")],
)
def test_a_graders_fault_is_recorded_and_never_raised(task, prompt, function, why):
    mapping = {"type": "composite", "terms": [{"use": f"{__name__}:{function}"}]}
    reward = build_reward(mapping, task)
    completions = [[completion_of(prompt, task.oracle(prompt))]]
    (group,) = score_groups(reward, [prompt], completions)
    (rollout,) = group.rollouts
    assert rollout.reward == 0.0 and rollout.missing == (function,)
    assert rollout.failure and why in rollout.failure
    assert rollout.terms["outcome"] == 1.0
    with pytest.raises(PluginError, match="SL0505"):
        reward.score(prompt, completions[0][0])


def test_groups_keep_the_order_of_prompts_and_samples(task):
    prompts = task.prompts(Split.EVAL)[:3]
    completions = [
        [completion_of(p, text, sample=i) for i, text in enumerate(("", task.oracle(p)))]
        for p in prompts
    ]
    groups = score_groups(build_reward({}, task), prompts, completions)
    assert [g.group_id for g in groups] == [0, 1, 2]
    assert [g.prompt for g in groups] == list(prompts)
    assert all(g.rewards == pytest.approx((0.0, 1.1)) for g in groups)
    assert all(r.failure is None and r.missing == () for g in groups for r in g.rollouts)


def test_a_plain_reward_object_is_summed(task, prompt):
    (group,) = score_groups(Scaled(2), [prompt], [[completion_of(prompt, "abc")]])
    assert group.rewards == (6.0,)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"type": "composit"}, "did you mean 'composite'"),
        ({"type": "composite", "weight": {}}, "reward: weight: unknown setting"),
        ({"type": "composite", "weights": {"outcom": 1}}, "weights.outcom: unknown setting"),
        ({"type": "composite", "weights": {"format": float("nan")}}, "weights.format"),
        ({"type": "composite", "outcome": "exct"}, "did you mean 'exact'"),
        ({"type": "composite", "outcome": "composite"}, "cannot be a composite"),
        ({"type": "composite", "terms": [{"type": "format"}]}, "names the term 'format' again"),
        ({"type": "composite", "terms": [{"type": "exact", "weight": "big"}]}, "weight gave a str"),
        ({"type": "composite", "terms": [{}]}, r"reward.terms\[0\]: needs a `type` or `use`"),
    ],
)
def test_bad_settings_are_named(task, mapping, message):
    with pytest.raises(SpecError, match=message):
        build_reward(mapping, task)


def test_something_that_cannot_score_is_refused(task):
    with pytest.raises(PluginError, match=r"SL0504 .*cannot score"):
        build_reward({"use": "math:pi"}, task)


def test_every_builtin_is_known_and_passes_the_check(task):
    assert {"composite", "exact", "numeric", "countdown", "format", "length"} <= set(
        REWARDS.names()
    )
    for name in ("exact", "numeric", "format", "length"):
        check_reward(build_reward({"type": name}, task), task, num_prompts=10)
