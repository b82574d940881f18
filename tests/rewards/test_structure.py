"""The structure of completions: what is well formed, which answer is trusted, what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.answer import TAGS
from stepladder.rewards.structure import parse
from stepladder.spec import ladder

CASES = [
    # text, answer, well formed, problem
    ("<think>t</think><answer>9</answer>", "9", True, ""),
    ("<think>t</think>\n<answer> 9 </answer>\n", "9", True, ""),
    ("<think></think><answer>9</answer>", "9", True, ""),
    ("<answer>9</answer>", "9", False, "<think> is missing"),
    ("t</think><answer>9</answer>", "9", False, "text outside the tags"),
    ("</think><answer>9</answer>", "9", False, "</think> closes nothing"),
    ("hi <think>t</think> so <answer>9</answer>.", "9", False, "text outside the tags"),
    ("<think>t</think><answer>9</answer> bye", "9", False, "text outside the tags"),
    ("<think>a</think><think>b</think><answer>c</answer>", "c", False, "<think> is repeated"),
    ("<think>t</think><answer>1</answer><answer>2</answer>", None, False, "<answer> is repeated"),
    ("<answer>1</answer><think>t</think>", None, False, "<answer> stands before <think>"),
    ("<think><answer>1</answer></think>", None, False, "<answer> opened inside <think>"),
    ("<think>t<answer>1</answer>", None, False, "<think> is never closed"),
    ("<think>t</think><answer>1", None, False, "<answer> is never closed"),
    ("<think>t</think>1</answer>", None, False, "text outside the tags"),
    ("<think>t</think><answer><answer>1</answer>", None, False, "<answer> is never closed"),
    ("<think>t</think><answer>1</think></answer>", None, False, "</think> closes nothing"),
    ("<think>t</think><answer><think>x</think>1</answer>", None, False, "opened inside"),
    ("<think>t</think><answer>1</answer></answer>", None, False, "</answer> closes nothing"),
    ("<think>t</think><answer> \n</answer>", None, False, "the answer is empty"),
    ("<Think>t</Think><answer>1</answer>", "1", False, "text outside the tags"),
    ("<think>a < b</think><answer>x<y</answer>", "x<y", True, ""),
    ("", None, False, "<think> is missing"),
    ("9", None, False, "text outside the tags"),
]


@pytest.mark.parametrize(("text", "answer", "well_formed", "problem"), CASES)
def test_cases(text, answer, well_formed, problem):
    found = parse(text)
    assert (found.answer, found.well_formed) == (answer, well_formed)
    assert problem in found.problem
    assert bool(found.problem) is not well_formed
    assert (found.position is None) is well_formed


def test_position_points_at_the_fault():
    found = parse("<think>t</think><answer>1</answer><answer>2</answer>")
    assert found.position == len("<think>t</think><answer>1</answer>")
    assert parse("<think>t</think> well <answer>1</answer>").position == 17


def test_tags_are_those_of_the_ladder():
    assert TAGS == ladder.TAGS


@given(st.lists(st.sampled_from([*TAGS, "1", " ", "<", "x"]), max_size=12).map("".join))
def test_anything_can_be_parsed(text):
    found = parse(text)
    if found.answer is not None:
        assert text.count("<answer>") == text.count("</answer>") == 1
        assert f"{found.answer}" in text.partition("<answer>")[2]
    if found.well_formed:
        assert found.answer is not None and found.think is not None
        assert [text.count(tag) for tag in TAGS] == [1, 1, 1, 1]
        assert text.strip().startswith("<think>") and text.strip().endswith("</answer>")
