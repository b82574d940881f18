"""Warm-up writes a policy that both loaders read, deterministically; corruption is what it says."""

import dataclasses
import random

import pytest
import torch

from stepladder.engine.llama import CompactLlama
from stepladder.engine.warmup import (
    build_base_policy,
    corrupt_answer,
    demonstrations,
    ladder_tokenizer,
)
from stepladder.spec.ladder import BOS_ID, EOS_ID, LADDER, WarmupRecipe, token_ids

SIZE = dataclasses.replace(
    LADDER["ladder-x1"], hidden_size=16, num_layers=1, num_heads=2, intermediate_size=24
)
RECIPE = dataclasses.replace(WarmupRecipe(), steps=40, batch_size=8)
PAIRS = [(f"{a}+1=", f"<think>{a}</think><answer>{a + 1}</answer>") for a in range(8)]
TEXT = "<think>1+2</think>\n<answer>3</answer>"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "policy"
    return folder, build_base_policy(SIZE, PAIRS, RECIPE, folder)


def test_the_report_says_what_was_done(built):
    folder, report = built
    assert report["size"] == "ladder-x1"
    assert report["num_parameters"] == SIZE.num_parameters
    assert report["num_demonstrations"] == 8
    # A uniform guess over 103 characters costs 4.6 nats.
    assert report["loss_per_token"] < 3.5
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]


def test_same_seed_same_weights_and_a_folder_is_replaced(built, tmp_path):
    folder, _ = built
    target = tmp_path / "again"
    target.mkdir()
    (target / "stale.txt").write_text("old")
    build_base_policy(SIZE, PAIRS, RECIPE, target)
    assert not (target / "stale.txt").exists()
    first = CompactLlama.from_folder(folder).hf_state_dict()
    second = CompactLlama.from_folder(target).hf_state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_seed_gives_other_weights(built, tmp_path):
    folder, _ = built
    build_base_policy(
        SIZE, PAIRS, dataclasses.replace(RECIPE, seed=RECIPE.seed + 1), tmp_path / "other"
    )
    first, second = (CompactLlama.from_folder(path) for path in (folder, tmp_path / "other"))
    assert not torch.equal(first.embedding, second.embedding)


def test_prompt_weight_trains_on_the_prompt_too(tmp_path):
    with_prompt = build_base_policy(SIZE, PAIRS, RECIPE, tmp_path / "a", prompt_weight=1.0)
    without = build_base_policy(SIZE, PAIRS, RECIPE, tmp_path / "b")
    assert with_prompt["loss_per_token"] != without["loss_per_token"]


def test_the_auto_classes_read_the_folder(built):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = built
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(TEXT)["input_ids"]
    assert ids == [BOS_ID, *token_ids(TEXT)]
    assert tokenizer.decode([*ids, EOS_ID], skip_special_tokens=True) == TEXT
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 0)
    assert theirs.generation_config.eos_token_id == EOS_ID
    ours = CompactLlama.from_folder(folder)
    batch_NT = torch.tensor([ids])
    ours_NTV = ours.logits(ours.forward_padded(batch_NT))
    torch.testing.assert_close(ours_NTV, theirs(batch_NT).logits, atol=1e-4, rtol=1e-4)


def test_the_chat_template_joins_contents_behind_bos(built):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(built[0])
    messages = [{"role": "user", "content": "1+"}, {"role": "user", "content": "2="}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert ids == [BOS_ID, *token_ids("1+2=")]


def test_tokenizer_and_spec_agree():
    tokenizer = ladder_tokenizer()
    for text in (TEXT, "a  b ~|", "é<thin <think", ""):
        assert tokenizer.encode(text, add_special_tokens=False).ids == token_ids(text)


def test_a_corrupted_answer_differs_in_one_character_of_its_kind():
    rng = random.Random(0)
    completion = "<think>12</think><answer>-12 aB</answer>"
    for _ in range(50):
        wrong = corrupt_answer(completion, "-12 aB", rng)
        changed = [(a, b) for a, b in zip(completion, wrong, strict=True) if a != b]
        assert len(changed) == 1
        assert wrong.startswith("<think>12</think><answer>-")
        (before, after) = changed[0]
        assert before.isdigit() == after.isdigit()
        assert before.isupper() == after.isupper()


def test_an_answer_without_digits_or_letters_stays():
    completion = "<answer>+-*</answer>"
    assert corrupt_answer(completion, "+-*", random.Random(0)) == completion


def test_without_tags_the_last_gold_is_corrupted():
    wrong = corrupt_answer("7 then 7", "7", random.Random(0))
    assert wrong.startswith("7 then ")
    assert wrong != "7 then 7"
    assert corrupt_answer("nothing", "7", random.Random(0)) == "nothing"


def test_demonstrations_corrupt_their_share_and_repeat_by_seed():
    solved = [(f"{a}+0=", f"<think>{a}</think><answer>{a}</answer>", f"{a}") for a in range(1000)]
    recipe = dataclasses.replace(RECIPE, corrupted_share=0.4)
    first = demonstrations(solved, recipe, seed=1)
    assert first == demonstrations(solved, recipe, seed=1)
    assert first != demonstrations(solved, recipe, seed=2)
    wrong = sum(demo[1] != triple[1] for demo, triple in zip(first, solved, strict=True))
    # 4 standard errors of a share of 0.4 in 1000.
    assert abs(wrong / 1000 - 0.4) < 4 * 0.0155
