"""Prompts and rollouts: complete at birth, equal by content."""

import dataclasses

import pytest

from stepladder.core.control import CONTINUE, ActionKind, stop
from stepladder.core.prompt import Split, make_prompt
from stepladder.core.rollout import Completion, Rollout, RolloutGroup, StopReason


def make_completion(prompt, **changes):
    values = {
        "prompt_id": prompt.id,
        "sample": 0,
        "prompt_token_ids": (1,),
        "token_ids": (2, 3),
        "logprobs": (-0.5, -0.1),
        "stop": StopReason.EOS,
        "policy_version": 0,
        "text": "ok",
    }
    return Completion(**{**values, **changes})


def test_equal_questions_have_equal_ids_whatever_their_split():
    train, held_out = make_prompt("1+1", "2", Split.TRAIN), make_prompt("1+1", "2", Split.EVAL)
    assert train.id == held_out.id != make_prompt("1+2", "3", Split.TRAIN).id
    assert train.text == "1+1"


def test_a_prompt_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_prompt("1+1", "2", Split.TRAIN).gold = "3"


def test_every_token_has_its_log_prob():
    with pytest.raises(AssertionError, match="2 tokens but 1 log-probs"):
        make_completion(make_prompt("a", "b", Split.TRAIN), logprobs=(-0.5,))


def test_only_the_token_limit_truncates():
    assert [reason.truncated for reason in StopReason] == [False, True, False]


def test_a_group_holds_one_prompt():
    prompt, other = make_prompt("a", "b", Split.TRAIN), make_prompt("c", "d", Split.TRAIN)
    mine, theirs = (
        Rollout(prompt=p, completion=make_completion(p), terms={"outcome": 1.0}, reward=reward)
        for p, reward in ((prompt, 1.0), (other, 0.0))
    )
    assert RolloutGroup(group_id=0, prompt=prompt, rollouts=(mine, mine)).rewards == (1.0, 1.0)
    with pytest.raises(AssertionError, match="holds rollouts of"):
        RolloutGroup(group_id=0, prompt=prompt, rollouts=(mine, theirs))


def test_actions():
    assert CONTINUE.kind is ActionKind.CONTINUE
    assert (stop("kl").kind, stop("kl").reason) == (ActionKind.STOP, "kl")
