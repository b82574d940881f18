"""The outcome terms: exact text, exact numbers, countdown expressions."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.answer import full_marks, normalise, parse_number
from stepladder.core.prompt import Split, make_prompt
from stepladder.rewards.countdown import CountdownReward, evaluate
from stepladder.rewards.exact import ExactReward
from stepladder.rewards.numeric import NumericReward
from stepladder.testing.rewards import completion_of


def outcome(reward, gold, answer, **extra):
    prompt = make_prompt("q", gold, Split.EVAL, extra=extra)
    return reward.score(prompt, completion_of(prompt, full_marks("t", answer)))["outcome"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("+42", 42),
        ("-7", -7),
        ("\N{MINUS SIGN}7", -7),
        ("007", 7),
        ("42.", 42),
        ("42.50", Fraction(85, 2)),
        (".5", Fraction(1, 2)),
        ("1,234", 1234),
        ("1 234 567", 1234567),
        ("1\N{THIN SPACE}234", 1234),
        ("1\N{NO-BREAK SPACE}234", 1234),
        ("1\\,234", 1234),
        ("1,234.5", Fraction(2469, 2)),
        ("\uff14\uff12", 42),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        ("1e3", 1000),
        ("2.5E-1", Fraction(1, 4)),
    ],
)
def test_numbers(text, value):
    assert parse_number(text) == value


NOT_NUMBERS = [
    "inf",
    "-inf",
    "nan",
    "1e400",
    "1e-400",
    "1e99999999",
    "1,23",
    "12,34,567",
    "1/0",
    "1/",
    "/2",
    "1/2/3",
    "1e2/3",
    "0x1f",
    "1_000",
    "5%",
    "$5",
    "--5",
    "1.2.3",
    ".",
    "e5",
    "1e",
    "7!",
    "\\boxed{42}",
    "4²",
    "٤٢",
]


@pytest.mark.parametrize(
    "text",
    [*NOT_NUMBERS, "", " ", "9" * 61, "1 2", "1,234 567", "5 apples", "- 5", "42 = 42", "1, 234"],
)
def test_not_numbers(text):
    assert parse_number(text) is None


@given(st.integers(-(10**15), 10**15), st.sampled_from(["{}", "{:,}", " {} ", "{}.0", "{}/1"]))
def test_every_way_of_writing_a_whole_number(number, form):
    assert parse_number(form.format(number)) == number


@given(st.text(max_size=30))
def test_reading_never_fails(text):
    parse_number(text)
    normalise(text)
    with suppress(ValueError, ZeroDivisionError):
        evaluate(text)


def test_numeric_outcome():
    assert outcome(NumericReward(), "1234", "1,234.0") == 1.0
    assert outcome(NumericReward(), "42", "\uff14\uff12") == 1.0
    assert outcome(NumericReward(), "1/3", "0.333333") == 0.0
    assert outcome(NumericReward(), "42", "42 or 43") == 0.0
    with pytest.raises(ValueError, match="is no number"):
        outcome(NumericReward(), "forty-two", "42")


def test_exact_outcome():
    assert outcome(ExactReward(), "New  York", " New York\n") == 1.0
    assert outcome(ExactReward(), "\uff21\uff22\uff11", "AB1") == 1.0
    assert outcome(ExactReward(), "42", "4\N{SUPERSCRIPT TWO}") == 0.0
    assert outcome(ExactReward(), "New York", "new york") == 0.0
    assert outcome(ExactReward(), "grain", "the grain") == 0.0


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("(8-4)*6*1", 1.0),
        ("( 8 - 4 ) * 6 / 1", 1.0),
        ("6/(1/4)+8-8", 0.0),
        ("\uff088-4\uff09*6*1", 1.0),
        ("4*6*(8-1)", 0.0),
        ("(8-4)*6", 0.0),
        ("24", 0.0),
        ("(8-4)*6*1=24", 0.0),
        ("(8-4)*6*1*1", 0.0),
        ("(8-4)*6**1", 0.0),
        ("--8+4*6-1*8", 0.0),
        ("(8-4)*6/(1-1)", 0.0),
        ("((8-4)*6*1", 0.0),
        ("(8-4))*6*1", 0.0),
        ("__import__('os')", 0.0),
        ("(" * 150 + "8", 0.0),
        ("1" * 50, 0.0),
    ],
)
def test_countdown_outcome(answer, right):
    extra = {"numbers": [1, 4, 6, 8], "target": 24, "use_all": True}
    assert outcome(CountdownReward(), "(8-4)*6*1", answer, **extra) == right


def test_countdown_with_numbers_to_spare():
    extra = {"numbers": [1, 4, 6, 8], "target": 24, "use_all": False}
    assert outcome(CountdownReward(), "4*6", "4*6", **extra) == 1.0
    assert outcome(CountdownReward(), "4*6", "4*4+8", **extra) == 0.0


def test_division_is_exact():
    assert evaluate("1/3+1/3+1/3") == (1, [1, 3, 1, 3, 1, 3])
    assert evaluate("8/4/2-1")[0] == 0
    assert evaluate("2-3-4")[0] == -5
