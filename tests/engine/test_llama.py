"""The compact Llama equals transformers, and its own paths equal each other."""

import json

import pytest
import torch

from stepladder.engine.llama import CompactLlama
from stepladder.engine.llama_shape import supported

TINY = {
    "model_type": "llama",
    "vocab_size": 19,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "initializer_range": 0.3,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
CONFIGS = {
    "grouped_heads_tied": TINY,
    "one_key_head_untied": {**TINY, "num_key_value_heads": 1, "tie_word_embeddings": False},
    "own_head_size": {**TINY, "num_key_value_heads": 4, "head_dim": 6, "rope_theta": 500.0},
}
PRECISIONS = {"float32": (torch.float32, 1e-4), "float64": (torch.float64, 1e-9)}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
each_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"), PRECISIONS.values(), ids=PRECISIONS.keys()
)
PROMPT_LENGTHS = torch.tensor([3, 6, 5])
EQUAL_GROUPS = torch.tensor([0, 0, 1, 1, 2, 2])
UNEQUAL_GROUPS = torch.tensor([0, 1, 1, 1, 2, 2])


def tokens(*shape, seed=0):
    return torch.randint(0, 19, shape, generator=torch.Generator().manual_seed(seed))


def padded_sequences(prompts_PL, completions_NC, group_N):
    """Each completion behind its own prompt, right-padded with token 0."""
    rows = [
        torch.cat((prompts_PL[p, : PROMPT_LENGTHS[p]], completion))
        for p, completion in zip(group_N.tolist(), completions_NC, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def completion_part(values_NT, group_N, num_new):
    starts = PROMPT_LENGTHS[group_N]
    return torch.stack(
        [row[start : start + num_new] for row, start in zip(values_NT, starts, strict=True)]
    )


@each_config
def test_padded_equals_transformers(config, tmp_path):
    from transformers import AutoModelForCausalLM

    model = CompactLlama.from_config(config, seed=1)
    model.save_folder(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    batch_NT = tokens(4, 9)
    ours_NTV = model.logits(model.forward_padded(batch_NT))
    torch.testing.assert_close(ours_NTV, theirs(batch_NT).logits, atol=1e-4, rtol=1e-4)


@each_config
def test_transformers_folder_round_trip(config, tmp_path):
    from transformers import AutoModelForCausalLM

    CompactLlama.from_config(config, seed=2).save_folder(tmp_path / "ours")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="2KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    back = CompactLlama.from_folder(tmp_path / "theirs")
    expected = CompactLlama.from_folder(tmp_path / "ours").hf_state_dict()
    for name, weight in back.hf_state_dict().items():
        assert torch.equal(weight, expected[name]), name


@each_config
@each_precision
@pytest.mark.parametrize("group_N", [EQUAL_GROUPS, UNEQUAL_GROUPS], ids=["equal", "unequal"])
def test_shared_equals_padded(config, dtype, tolerance, group_N):
    model = CompactLlama.from_config(config, seed=3, dtype=dtype)
    prompts_PL, completions_NC = tokens(3, 6), tokens(6, 4, seed=1)
    last_PD, hidden_NCD = model.forward_shared(prompts_PL, PROMPT_LENGTHS, completions_NC, group_N)
    plain_NTD = model.forward_padded(padded_sequences(prompts_PL, completions_NC, group_N))
    expected_NCD = completion_part(plain_NTD, group_N, 4)
    torch.testing.assert_close(hidden_NCD, expected_NCD, atol=tolerance, rtol=tolerance)
    first_rows = torch.searchsorted(group_N, torch.arange(3))
    expected_PD = plain_NTD[first_rows, PROMPT_LENGTHS - 1]
    torch.testing.assert_close(last_PD, expected_PD, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("group_N", [EQUAL_GROUPS, UNEQUAL_GROUPS], ids=["equal", "unequal"])
def test_shared_gradients_equal_padded(group_N):
    model = CompactLlama.from_config(TINY, seed=4, dtype=torch.float64)
    prompts_PL, completions_NC = tokens(3, 6), tokens(6, 4, seed=1)
    plain_NTD = model.forward_padded(padded_sequences(prompts_PL, completions_NC, group_N))
    last_ND = plain_NTD[torch.arange(6), PROMPT_LENGTHS[group_N] - 1]
    (completion_part(plain_NTD, group_N, 4).square().sum() + last_ND.sum()).backward()
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    last_PD, hidden_NCD = model.forward_shared(prompts_PL, PROMPT_LENGTHS, completions_NC, group_N)
    (hidden_NCD.square().sum() + last_PD[group_N].sum()).backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], atol=1e-9, rtol=1e-9, msg=name)


@each_config
@each_precision
def test_decode_equals_padded(config, dtype, tolerance):
    model = CompactLlama.from_config(config, seed=5, dtype=dtype)
    prompts_PL, completions_NC = tokens(3, 6), tokens(6, 4, seed=1)
    plain_NTD = model.forward_padded(padded_sequences(prompts_PL, completions_NC, EQUAL_GROUPS))
    expected_NCV = model.logits(completion_part(plain_NTD, EQUAL_GROUPS, 4))
    with torch.inference_mode():
        first_PV, prompts = model.prefill(prompts_PL, PROMPT_LENGTHS)
        suffix = model.suffix_cache(6, 4)
        steps = [model.decode(column, suffix, prompts) for column in completions_NC.T]
    torch.testing.assert_close(torch.stack(steps, 1), expected_NCV, atol=tolerance, rtol=tolerance)
    last_ND = plain_NTD[torch.arange(6), PROMPT_LENGTHS[EQUAL_GROUPS] - 1]
    expected_PV = model.logits(last_ND)[::2]
    torch.testing.assert_close(first_PV, expected_PV, atol=tolerance, rtol=tolerance)


def test_decode_goes_on_after_rows_are_dropped():
    model = CompactLlama.from_config(TINY, seed=6, dtype=torch.float64)
    prompts_PL, completions_NC = tokens(3, 6), tokens(6, 4, seed=1)
    plain_NTD = model.forward_padded(padded_sequences(prompts_PL, completions_NC, EQUAL_GROUPS))
    expected_NCV = model.logits(completion_part(plain_NTD, EQUAL_GROUPS, 4))
    kept = torch.tensor([1, 4, 5])
    with torch.inference_mode():
        _, prompts = model.prefill(prompts_PL, PROMPT_LENGTHS)
        suffix = model.suffix_cache(6, 4)
        for column in completions_NC[:, :2].T:
            model.decode(column, suffix, prompts)
        prompts, suffix = prompts.select(EQUAL_GROUPS[kept]), suffix.select(kept)
        logits_BV = model.decode(completions_NC[kept, 2], suffix, prompts)
    torch.testing.assert_close(logits_BV, expected_NCV[kept, 2], atol=1e-9, rtol=1e-9)


def test_decode_with_prompts_joined_equals_padded():
    model = CompactLlama.from_config(TINY, seed=6, dtype=torch.float64)
    prompts_PL, completions_NC = tokens(3, 6), tokens(6, 4, seed=1)
    plain_NTD = model.forward_padded(padded_sequences(prompts_PL, completions_NC, EQUAL_GROUPS))
    expected_NCV = model.logits(completion_part(plain_NTD, EQUAL_GROUPS, 4))
    kept = torch.tensor([0, 3, 5])
    with torch.inference_mode():
        _, prompts = model.prefill(prompts_PL, PROMPT_LENGTHS)
        visible, suffix = prompts.select(EQUAL_GROUPS).joined(4)
        first_BV = model.decode(completions_NC[:, 0], suffix, visible)
        visible, suffix = visible.select(kept), suffix.select(kept)
        second_BV = model.decode(completions_NC[kept, 1], suffix, visible)
    torch.testing.assert_close(first_BV, expected_NCV[:, 0], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(second_BV, expected_NCV[kept, 1], atol=1e-9, rtol=1e-9)


def test_sampling_before_training_leaves_autograd_usable():
    model = CompactLlama.from_config(TINY, seed=7)
    with torch.inference_mode():
        model.prefill(tokens(2, 5), torch.tensor([5, 4]))
    model.forward_padded(tokens(2, 5)).sum().backward()
    assert model.embedding.grad is not None


def test_hf_names_round_trip_in_memory():
    model = CompactLlama.from_config(TINY, seed=8)
    other = CompactLlama.from_config(TINY, seed=9)
    other.load_hf_state_dict(model.hf_state_dict())
    batch_NT = tokens(2, 5)
    assert torch.equal(model.forward_padded(batch_NT), other.forward_padded(batch_NT))


def test_same_seed_same_weights():
    first, second = (CompactLlama.from_config(TINY, seed=3) for _ in range(2))
    assert torch.equal(first.embedding, second.embedding)
    assert torch.equal(first.layers[1].qkv, second.layers[1].qkv)


def test_a_missing_weight_is_named():
    state = CompactLlama.from_config(TINY).hf_state_dict()
    del state["model.norm.weight"]
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        CompactLlama.from_config(TINY).load_hf_state_dict(state)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "qwen3"}, "model_type"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"head_dim": 5}, "odd"),
    ],
)
def test_refused_configs_say_why(change, reason):
    config = {**TINY, **change}
    assert reason in (supported(config) or "")
    with pytest.raises(ValueError, match=reason):
        CompactLlama.from_config(config)


def test_a_config_without_sizes_is_refused():
    assert "vocab_size" in (supported({"model_type": "llama"}) or "")


def test_supported_config_has_no_reason():
    assert supported(TINY) is None
    assert supported(json.loads(json.dumps({**TINY, "rope_scaling": None}))) is None
