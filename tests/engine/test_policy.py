"""The one shift, the shared-prompt path and the transformers path give the same log-probs."""

from dataclasses import replace

import pytest
import tiny
import torch

from stepladder.core.prompt import Split
from stepladder.core.rollout import SamplingParams
from stepladder.engine.batch import pack
from stepladder.engine.load import load_policy
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.text import load_codec
from stepladder.engine.token_logprob import token_logprob
from stepladder.rewards.score import score_groups
from stepladder.spec.run import ModelSpec

TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.tiny_policy(tmp_path_factory.mktemp("policy"), dtype="float64")


def load(folder, compact=True, dtype="float64", temperature=TEMPERATURE):
    return load_policy(folder, ModelSpec(dtype=dtype), temperature, prefer_compact=compact)


def sampled(folder, policy, counts=(3, 1, 4, 2), seed=5):
    prompts = tiny.TinyTask().prompts(Split.TRAIN)[: len(counts)]
    params = SamplingParams(max_new_tokens=7, temperature=TEMPERATURE, seed=seed)
    completions = LocalSampler(policy, load_codec(folder)).sample(prompts, counts, params)
    return score_groups(tiny.TinyReward(), prompts, completions)


def brute_force(policy, packed):
    """Log-softmax of every row's own unpadded sequence."""
    expected = torch.zeros_like(packed.tokens_NT, dtype=torch.float64)
    entropy = torch.zeros_like(expected)
    model = policy.backbone.model
    for row, length in enumerate(packed.length_N.tolist()):
        tokens_T = packed.tokens_NT[row, :length]
        logits_TV = model.logits(model.forward_padded(tokens_T[None]))[0] / TEMPERATURE
        logp_TV = logits_TV.log_softmax(-1)
        for t in range(int(packed.prompt_length_N[row]), length):
            expected[row, t] = logp_TV[t - 1, tokens_T[t]]
            entropy[row, t] = -(logp_TV[t - 1].exp() * logp_TV[t - 1]).sum()
    return expected, entropy


def test_shared_path_equals_the_plain_one(folder):
    policy = load(folder)
    packed = pack(sampled(folder, policy))
    found = policy.logprobs(packed)
    logp_NT, entropy_NT = brute_force(policy, packed)
    torch.testing.assert_close(found.logp_NT, logp_NT)
    torch.testing.assert_close(found.entropy_NT, entropy_NT)
    torch.testing.assert_close(found.logp_NT.float(), packed.sampler_logp_NT, atol=1e-5, rtol=0)


def test_transformers_backbone_equals_the_compact_one(folder):
    ours, theirs = load(folder), load(folder, compact=False)
    packed = pack(sampled(folder, ours))
    first, second = ours.logprobs(packed), theirs.logprobs(packed)
    torch.testing.assert_close(first.logp_NT, second.logp_NT, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(first.entropy_NT, second.entropy_NT, atol=1e-6, rtol=1e-6)
    for result in (first, second):
        (result.logp_NT.sum() + result.entropy_NT.sum()).backward()
    norms = [
        torch.nn.utils.get_total_norm([w.grad for w in p.named_parameters().values()])
        for p in (ours, theirs)
    ]
    torch.testing.assert_close(*norms, atol=1e-5, rtol=1e-5)


def test_both_backbones_draw_the_same_completions(folder):
    ours, theirs = load(folder), load(folder, compact=False)
    for first, second in zip(sampled(folder, ours), sampled(folder, theirs), strict=True):
        for one, other in zip(first.rollouts, second.rollouts, strict=True):
            assert one.completion.token_ids == other.completion.token_ids
            assert one.completion.text == other.completion.text
            assert one.completion.logprobs == pytest.approx(other.completion.logprobs, abs=1e-5)


def test_part_of_a_batch_gets_the_same_logprobs(folder):
    policy = load(folder)
    packed = pack(sampled(folder, policy))
    rows = torch.tensor([1, 3, 5, 8])
    torch.testing.assert_close(policy.logp(packed)[rows], policy.logp(packed.rows(rows)))


def test_one_token_completions(folder):
    policy = load(folder)
    prompts = tiny.TinyTask().prompts(Split.TRAIN)[:2]
    params = SamplingParams(max_new_tokens=1, temperature=TEMPERATURE, seed=1)
    drawn = LocalSampler(policy, load_codec(folder)).sample(prompts, [2, 2], params)
    packed = pack(score_groups(tiny.TinyReward(), prompts, drawn))
    torch.testing.assert_close(policy.logp(packed), brute_force(policy, packed)[0])


def test_padding_tokens_do_not_matter(folder):
    policy = load(folder)
    packed = pack(sampled(folder, policy))
    beyond_NT = torch.arange(packed.tokens_NT.shape[1]) >= packed.length_N[:, None]
    other = replace(packed, tokens_NT=packed.tokens_NT.masked_fill(beyond_NT, 9))
    torch.testing.assert_close(policy.logp(packed), policy.logp(other), atol=0, rtol=0)


def test_token_logprob_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([0, 4, 2])
    assert torch.autograd.gradcheck(lambda z: token_logprob(z, tokens, 0.7), (logits,))
    logp_AV = (logits / 0.7).log_softmax(-1)
    logp_A, entropy_A = token_logprob(logits, tokens, 0.7)
    torch.testing.assert_close(logp_A, logp_AV[torch.arange(3), tokens])
    torch.testing.assert_close(entropy_A, -(logp_AV.exp() * logp_AV).sum(-1))
