"""The embedded ladder's sizes, characters and token ids."""

import dataclasses

import pytest

from stepladder.spec.ladder import (
    CHARACTERS,
    LADDER,
    TAGS,
    TOKEN_ID,
    WarmupRecipe,
    ladder_config,
    token_ids,
)


def test_parameter_counts_follow_the_ratios():
    smallest = LADDER["ladder-x1"].num_parameters
    for size in LADDER.values():
        assert size.num_parameters / smallest == pytest.approx(size.ratio, rel=0.05)


def test_names_and_ratios():
    assert [(name, size.name, size.ratio) for name, size in LADDER.items()] == [
        ("ladder-x1", "ladder-x1", 1),
        ("ladder-x2", "ladder-x2", 2),
        ("ladder-x4", "ladder-x4", 4),
    ]


def test_head_sizes_are_whole_and_even():
    for size in LADDER.values():
        assert size.hidden_size % (2 * size.num_heads) == 0


def test_every_character_has_one_id():
    assert len(set(CHARACTERS)) == len(CHARACTERS) == len(TOKEN_ID)


def test_a_text_is_read_character_by_character_and_a_tag_as_one_token():
    ids = token_ids("<think>1+2\n</think><answer>3</answer>")
    pieces = ["<think>", "1", "+", "2", "\n", "</think>", "<answer>", "3", "</answer>"]
    assert [CHARACTERS[token] for token in ids] == pieces


def test_an_unfinished_tag_is_characters():
    assert len(token_ids("<thin")) == 5


def test_a_prompt_cannot_write_special_tokens():
    assert not {0, 1, 2} & set(token_ids("<pad><bos><eos>"))


def test_unknown_characters_read_as_a_question_mark():
    assert token_ids("é") == token_ids("?")


def test_config_fits_the_vocabulary():
    for size in LADDER.values():
        config = ladder_config(size)
        assert config["vocab_size"] == len(CHARACTERS) == 103
        assert config["eos_token_id"] == TOKEN_ID["<eos>"]
    assert all(tag in CHARACTERS for tag in TAGS)


def test_peak_learning_rate_falls_with_size():
    recipe = dataclasses.replace(WarmupRecipe(), learning_rate=0.004, learning_rate_power=0.5)
    peaks = [recipe.peak_learning_rate(size) for size in LADDER.values()]
    assert peaks == pytest.approx([0.004, 0.004 / 2**0.5, 0.002])
