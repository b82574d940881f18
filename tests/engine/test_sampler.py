"""The local sampler draws what the policy says and reports the log-probs it drew with."""

import pytest
import torch

from stepladder.engine import sampler
from stepladder.engine.llama import CompactLlama
from stepladder.engine.sampler import draw, sample_tokens

CONFIG = {
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
    "tie_word_embeddings": True,
}
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
COUNTS = [5, 1, 4]
EOS = {2, 3}


@pytest.fixture(scope="module")
def model():
    return CompactLlama.from_config(CONFIG, seed=1)


def sample(model, seed=0, counts=COUNTS, temperature=1.0, max_new_tokens=12, eos_ids=EOS):
    generator = torch.Generator().manual_seed(seed)
    return sample_tokens(
        model,
        PROMPTS,
        counts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        eos_ids=eos_ids,
        generator=generator,
    )


def padded_logprobs(model, one, temperature):
    """Log-probs of a completion by the plain forward."""
    sequence = torch.tensor([PROMPTS[one.prompt_index] + list(one.token_ids)])
    logits_TV = model.logits(model.forward_padded(sequence))[0, :-1].detach() / temperature
    logp_TV = logits_TV.log_softmax(-1)[-len(one.token_ids) :]
    return logp_TV.gather(1, torch.tensor(one.token_ids)[:, None])[:, 0]


@pytest.mark.parametrize("share_from", [0, 1000], ids=["shared_keys", "keys_per_row"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_the_padded_forward(model, monkeypatch, share_from, temperature):
    monkeypatch.setattr(sampler, "SHARE_FROM_TOKENS", share_from)
    for one in sample(model, temperature=temperature):
        expected_T = padded_logprobs(model, one, temperature)
        torch.testing.assert_close(torch.tensor(one.logprobs), expected_T, atol=1e-4, rtol=1e-4)


def test_rows_come_back_in_prompt_order_with_their_counts(model):
    indices = [one.prompt_index for one in sample(model)]
    assert indices == [0] * 5 + [1] + [2] * 4


def test_a_prompt_may_ask_for_no_completion(model):
    assert [one.prompt_index for one in sample(model, counts=[0, 2, 0])] == [1, 1]
    assert sample(model, counts=[0, 0, 0]) == []


def test_same_seed_same_completions(model):
    assert sample(model, seed=3) == sample(model, seed=3)
    assert sample(model, seed=3) != sample(model, seed=4)


def test_completions_end_at_their_first_eos_or_at_the_limit(model):
    drawn = sample(model, counts=[40, 40, 40])
    assert {one.stopped for one in drawn} == {True, False}
    for one in drawn:
        assert not EOS & set(one.token_ids[:-1])
        assert one.stopped == (one.token_ids[-1] in EOS)
        assert one.stopped or len(one.token_ids) == 12


@pytest.mark.parametrize("share_from", [0, 1000], ids=["shared_keys", "keys_per_row"])
def test_dropping_finished_rows_changes_nothing(model, monkeypatch, share_from):
    monkeypatch.setattr(sampler, "SHARE_FROM_TOKENS", 1000)
    monkeypatch.setattr(sampler, "COMPACT_BELOW", 0.0)
    kept = sample(model, counts=[20, 7, 20])
    monkeypatch.setattr(sampler, "SHARE_FROM_TOKENS", share_from)
    monkeypatch.setattr(sampler, "COMPACT_BELOW", 1.0)
    dropped = sample(model, counts=[20, 7, 20])
    for first, second in zip(kept, dropped, strict=True):
        assert first.token_ids == second.token_ids
        assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)


def test_frequencies_match_softmax():
    logits_V = torch.tensor([0.0, 1.0, -1.0, 2.0, float("-inf")])
    uniform_B = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    token_B, logp_B = draw(logits_V.expand(40_000, -1), uniform_B, 1.0)
    share_V = token_B.bincount(minlength=5) / 40_000
    probability_V = logits_V.softmax(-1)
    # 4.5 standard errors of a share.
    error_V = 4.5 * (probability_V * (1 - probability_V) / 40_000).sqrt()
    assert ((share_V - probability_V).abs() <= error_V).all()
    torch.testing.assert_close(logp_B, probability_V.log()[token_B])


def test_first_tokens_match_the_policy(model):
    drawn = sample(model, counts=[0, 4000, 0], max_new_tokens=1)
    share_V = torch.tensor([one.token_ids[0] for one in drawn]).bincount(minlength=11) / 4000
    logits_V = model.logits(model.forward_padded(torch.tensor([PROMPTS[1]])))[0, -1].detach()
    probability_V = logits_V.softmax(-1)
    error_V = 4.5 * (probability_V * (1 - probability_V) / 4000).sqrt()
    assert ((share_V - probability_V).abs() <= error_V).all()


def test_temperature_zero_is_greedy(model):
    first, *rest = sample(model, counts=[3, 0, 0], temperature=0)
    assert all(one.token_ids == first.token_ids for one in rest)
    logp_T = padded_logprobs(model, first, 1.0)
    sequence = torch.tensor([PROMPTS[0] + list(first.token_ids)])
    best_T = model.logits(model.forward_padded(sequence))[0, 2:-1].argmax(-1)
    assert best_T.tolist() == list(first.token_ids)
    torch.testing.assert_close(torch.tensor(first.logprobs), logp_T, atol=1e-4, rtol=1e-4)


def test_without_eos_every_row_reaches_the_limit(model):
    assert {len(one.token_ids) for one in sample(model, eos_ids=())} == {12}
