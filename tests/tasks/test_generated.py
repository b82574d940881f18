"""The built-in tasks: right golds, disjoint splits, honest sizes, dials that act."""

import re
from fractions import Fraction

import pytest

from stepladder.core.errors import PlanError, SpecError
from stepladder.core.prompt import Split
from stepladder.tasks.arithmetic import column_differences, column_sums, partial_products
from stepladder.tasks.registry import TASKS, build_task
from stepladder.tasks.split import assert_disjoint, overlap
from stepladder.testing.tasks import check_hash_seeds, check_task

SMALL = {"num_train": 120, "num_eval": 40, "num_holdout": 40}
SETTINGS = [
    {"type": "arithmetic"},
    {"type": "arithmetic", "digits": 4, "min_digits": 1},
    {"type": "arithmetic", "operations": ["-"], "digits": 3},
    {"type": "arithmetic", "operations": ["+", "-", "*"], "terms": 4, "digits": 1},
    {"type": "countdown", "numbers": 4},
    {"type": "countdown", "numbers": 2, "use_all": False},
    {"type": "letters", "length": 8, "min_length": 3},
]


@pytest.mark.parametrize("instructed", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_builtin_tasks_pass_the_conformance_check(settings, instructed):
    check_task(build_task({**settings, **SMALL, "instructed": instructed}), num_prompts=80)


@pytest.mark.parametrize("name", ["arithmetic", "countdown", "letters"])
def test_prompts_do_not_depend_on_the_hash_seed(name):
    check = check_hash_seeds({"type": name, **SMALL})
    assert check.passed, check.detail


@pytest.mark.parametrize("name", ["arithmetic", "countdown", "letters"])
def test_default_sizes_and_characters(name):
    task = build_task({"type": name})
    assert {split.value: len(task.prompts(split)) for split in Split} == {
        "train": 4096,
        "eval": 512,
        "holdout": 512,
    }
    for prompt in task.prompts(Split.TRAIN)[:300]:
        assert re.fullmatch(r"[ -~]+", prompt.text + task.oracle(prompt))
        assert prompt.data_source == name
    assert overlap(task) == []
    assert task.prompts(Split.TRAIN) is task.prompts(Split.TRAIN)


def test_the_ladders_own_format():
    task = build_task({"type": "arithmetic"})
    for prompt in task.prompts(Split.TRAIN)[:50]:
        first, second = map(int, prompt.text.removesuffix("=").split("+"))
        assert prompt.gold == str(first + second)
        assert 10 <= first <= 99
        assert task.oracle(prompt).endswith(f"</think><answer>{prompt.gold}</answer>")
    assert column_sums([37, 58]) == "7+8=15,3+5+1=9"
    assert column_sums([5, 99, 3]) == "5+9+3=17,0+9+0+1=10"


def test_scratchpads():
    assert column_differences(52, 17) == "12-7=5,5-1-1=3"
    assert column_differences(100, 1) == "10-1=9,10-0-1=9,1-0-1=0"
    assert partial_products(37, 58) == "37*8=296,37*50=1850,296+1850=2146"


@pytest.mark.parametrize("settings", [s for s in SETTINGS if s["type"] == "arithmetic"], ids=str)
def test_every_equation_of_a_scratchpad_is_true(settings):
    task = build_task({**settings, **SMALL})
    for prompt in task.prompts(Split.TRAIN):
        work = task.oracle(prompt).removeprefix("<think>").partition("</think>")[0]
        for equation in work.split(","):
            left, _, right = equation.rpartition("=")
            assert eval(left) == int(right), equation


def test_negative_differences_are_right():
    task = build_task({"type": "arithmetic", "operations": ["-"], **SMALL})
    golds = {p.text: int(p.gold) for p in task.prompts(Split.TRAIN)}
    assert any(gold < 0 for gold in golds.values())
    assert all(eval(text.removesuffix("=")) == gold for text, gold in golds.items())


def test_countdown_gold_reaches_its_target():
    for prompt in build_task({"type": "countdown", **SMALL}).prompts(Split.EVAL):
        assert Fraction(eval(prompt.gold)) == prompt.extra["target"]
        assert sorted(map(int, re.findall(r"\d+", prompt.gold))) == prompt.extra["numbers"]


def test_the_dial_is_the_difficulty():
    for name, dial in (("arithmetic", "digits"), ("countdown", "numbers"), ("letters", "length")):
        task = build_task({"type": name, dial: 5, **SMALL})
        assert {prompt.difficulty for prompt in task.prompts(Split.EVAL)} == {5.0}


def test_splits_shrink_to_what_exists():
    task = build_task({"type": "arithmetic", "digits": 1})
    assert [len(task.prompts(split)) for split in Split] == [80, 10, 10]


def test_sizes_that_cannot_be_filled_are_refused():
    with pytest.raises(SpecError, match=r"SL0112 .*num_train.*only 100 distinct prompts exist"):
        build_task({"type": "arithmetic", "digits": 1, "num_train": 100})


def test_more_training_prompts_leave_the_other_splits_alone():
    small = build_task({"type": "letters", **SMALL})
    large = build_task({"type": "letters", **SMALL, "num_train": 240})
    for split in (Split.EVAL, Split.HOLDOUT):
        assert small.prompts(split) == large.prompts(split)
    assert list(large.prompts(Split.TRAIN)[:120]) == list(small.prompts(Split.TRAIN))


def test_another_seed_is_another_data_set():
    first, second = (build_task({"type": "letters", **SMALL, "seed": s}) for s in (1, 2))
    assert first.prompts(Split.EVAL) != second.prompts(Split.EVAL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "arithmetik"}, "did you mean 'arithmetic'"),
        ({}, "needs a `type` or `use`"),
        ({"type": "arithmetic", "digit": 3}, "task: digit: unknown setting .*'digits'"),
        ({"type": "arithmetic", "digits": 9}, "task: digits: 9 is refused"),
        ({"type": "arithmetic", "digits": 2, "min_digits": 3}, "min_digits: is above digits"),
        ({"type": "arithmetic", "operations": []}, "must name each sign once"),
        ({"type": "countdown", "numbers": "many"}, "task: numbers"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(SpecError, match=message):
        build_task(settings)


def test_an_oracle_for_another_tasks_prompt_is_refused():
    letters = build_task({"type": "letters", **SMALL})
    foreign = build_task({"type": "arithmetic", **SMALL}).prompts(Split.EVAL)[0]
    with pytest.raises(PlanError, match="is not a prompt of task"):
        letters.oracle(foreign)


def test_every_builtin_is_known():
    assert {"arithmetic", "countdown", "letters", "rows"} <= set(TASKS.names())
    assert_disjoint(build_task({"type": "letters", **SMALL}))
