"""The conformance checks catch the faults that they are for."""

import itertools

import pytest

from stepladder.core.answer import full_marks
from stepladder.core.prompt import Split, make_prompt
from stepladder.tasks.registry import build_task
from stepladder.testing.rewards import changed, check_reward, known_right
from stepladder.testing.tasks import audit_task, check_hash_seeds, check_task

SMALL = {"num_train": 30, "num_eval": 10, "num_holdout": 10}


class Tiny:
    """Ten prompts a split, right in every way."""

    name = "tiny"
    outcome = "exact"

    def prompts(self, split):
        start = {Split.TRAIN: 0, Split.EVAL: 10, Split.HOLDOUT: 20}[split]
        return [make_prompt(f"say {i}", f"v{i}", split) for i in range(start, start + 10)]

    def oracle(self, prompt):
        return full_marks("", prompt.gold)


class Leaky(Tiny):
    def prompts(self, split):
        return [make_prompt(f"say {i}", f"v{i}", split) for i in range(10)]


class Restless(Tiny):
    counter = itertools.count()

    def prompts(self, split):
        return [make_prompt(f"say {next(self.counter)}", "v", split) for _ in range(10)]


class Wrong(Tiny):
    def oracle(self, prompt):
        return full_marks("", f"{prompt.gold}?")


class Untidy(Tiny):
    def oracle(self, prompt):
        return f"<answer>{prompt.gold}</answer>"


class Generous(Tiny):
    outcome = f"{__name__}:Contains"


class Contains:
    """Pays when the gold stands anywhere: the classic hole."""

    def score(self, prompt, completion):
        return {"outcome": float(prompt.gold in completion.text)}


def test_a_sound_task_passes():
    check_task(Tiny(), num_prompts=20)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Leaky(), "splits share no prompt: SL0230"),
        (Restless(), "prompts: the eval split differs"),
        (Wrong(), "oracle: outcome"),
        (Untidy(), "oracle: share of the full total.*<think> is missing"),
        (Generous(), "attack: gold without tags"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_faults_are_named(task, message):
    with pytest.raises(AssertionError, match=message):
        check_task(task, num_prompts=20)


def test_right_answers_of_other_prompts_are_skipped_and_counted():
    task = build_task({"type": "arithmetic", "digits": 1})
    checks = {check.name: check for check in audit_task(task, num_prompts=90)}
    other = checks["attack: another prompt's answer"]
    assert other.passed and other.num_skipped > 0 and other.num + other.num_skipped == 90


def test_the_second_opinion():
    prompt = build_task({"type": "countdown", **SMALL}).prompts(Split.TRAIN)[0]
    assert known_right(prompt, f"({prompt.gold})", "countdown")
    assert not known_right(prompt, f"{prompt.gold}+0", "countdown")
    assert not known_right(prompt, "open('x')", "countdown")
    number = make_prompt("q", "1234", Split.EVAL)
    assert known_right(number, "1,234.0", "numeric") and not known_right(number, "x", "numeric")


@pytest.mark.parametrize("gold", ["95", "9", "az", "Z", "(3+20)*11", "?!", "a-"])
def test_changed_differs(gold):
    assert changed(gold) != gold


def test_a_task_that_follows_the_hash_seed_is_caught(tmp_path):
    (tmp_path / "hashy.py").write_text(
        "from stepladder.core.prompt import make_prompt\n"
        "class Hashy:\n"
        "    name, outcome = 'hashy', 'exact'\n"
        "    def prompts(self, split):\n"
        "        words = {f'{split} {i}' for i in range(40)}\n"
        "        return [make_prompt(word, 'v', split) for word in words]\n"
        "    def oracle(self, prompt):\n"
        "        return ''\n"
    )
    check = check_hash_seeds({"use": "hashy:Hashy"}, tmp_path)
    assert not check.passed and "differ" in check.detail
    lost = check_hash_seeds({"use": "nowhere:Task"}, tmp_path)
    assert not lost.passed and "nowhere" in lost.detail


class Counting:
    """Remembers what it scored: no reward may."""

    def __init__(self):
        self.seen = 0

    def score(self, prompt, completion):
        self.seen += 1
        return {"value": float(self.seen)}


def half(prompt, completion):
    return {"outcome": 0.5}


def unsteady(prompt, completion):
    return {"a": 1.0} if completion.text else {"b": 1.0}


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (Counting(), "scored again, in another order, differ"),
        (half, "outcome 0.5"),
        (unsteady, "term names change"),
        (lambda prompt, completion: 1.0, "cannot be sent to a worker"),
        (lambda prompt, completion: "yes", "is a str"),
        (lambda prompt, completion: float("nan"), "is nan"),
        (lambda prompt, completion: {}, "score gave"),
    ],
)
def test_unsound_rewards_are_caught(reward, message):
    with pytest.raises(AssertionError, match=message):
        check_reward(reward, Tiny(), num_prompts=6)
