"""A model that is not a Llama runs through transformers, with its own tokenizer's template."""

import json

import pytest
import tiny
import torch

from stepladder.core.job import JobState
from stepladder.core.prompt import Split
from stepladder.engine.load import load_policy
from stepladder.engine.policy import CompactBackbone
from stepladder.engine.text import ChatCodec, LadderCodec, load_codec
from stepladder.engine.transformers_model import TransformersBackbone
from stepladder.spec.run import ModelSpec


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    from transformers import AutoModelForCausalLM, Qwen2Config

    folder = tiny.tiny_policy(tmp_path_factory.mktemp("qwen"))
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=5,
    )
    # The weights come from torch's global generator; put it back for the other tests.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}[me]{% endif %}"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_both_codecs_agree_on_a_ladder_folder(tmp_path):
    folder = tiny.tiny_policy(tmp_path)
    ours, theirs = load_codec(folder), ChatCodec(folder)
    assert isinstance(ours, LadderCodec)
    prompt = tiny.TinyTask().prompts(Split.TRAIN)[2]
    ids = ours.encode(prompt)
    assert ids == theirs.encode(prompt)
    assert ours.eos_ids == theirs.eos_ids
    batch = [[*ids[1:], 2], [20, 21], [3, 30, 4]]
    assert ours.decode(batch) == theirs.decode(batch) == ["2+1+1=", *ours.decode(batch)[1:]]
    assert ours.decode([[3, 30, 4]])[0].startswith("<think>")


def test_the_template_and_every_eos_of_the_folder_are_used(qwen):
    codec = load_codec(qwen)
    assert isinstance(codec, ChatCodec)
    prompt = tiny.TinyTask().prompts(Split.TRAIN)[0]
    assert codec.decode([codec.encode(prompt)]) == ["[user]0=[me]"]
    # config.json says 5; the ladder's generation_config.json and tokenizer say 2.
    assert {2, 5} >= codec.eos_ids >= {5}


def test_it_trains_and_its_sampler_agrees_with_its_trainer(qwen, tmp_path):
    assert isinstance(load_policy(qwen, ModelSpec(), 1.0).backbone, TransformersBackbone)
    end, recorder = tiny.execute(tiny.tiny_run(sampling__max_new_tokens=12), qwen, tmp_path)
    assert end.state is JobState.DONE
    assert all(row.values["logp_difference"] < 1e-5 for row in recorder.steps)
    assert recorder.steps[-1].values["kl_ref"] > 0
    again = load_policy(tmp_path / "policy", ModelSpec(), 1.0)
    assert isinstance(again.backbone, TransformersBackbone)
    assert load_codec(tmp_path / "policy").eos_ids >= {5}


def test_a_llama_runs_compact(tmp_path):
    policy = load_policy(tiny.tiny_policy(tmp_path), ModelSpec(), 1.0)
    assert isinstance(policy.backbone, CompactBackbone)
