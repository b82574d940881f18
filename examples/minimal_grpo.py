"""GRPO in one file: the teaching copy of Stepladder's engine, in plain torch.

    python examples/minimal_grpo.py POLICY_FOLDER [STEPS]

A rehearsal leaves the ladder's policies in its cache (`stepladder doctor` prints where). A test
holds this file to the engine: on the same rollouts, the first step's loss and gradient norm are
equal. It is slow on purpose: no key cache, no sharing.

Axes: P prompts, G samples of each, N = P x G rollouts, T tokens, V vocabulary.
"""

import copy
import sys
from dataclasses import dataclass

import torch

from stepladder.core.prompt import Split
from stepladder.core.rollout import Completion, StopReason


@dataclass(frozen=True)
class Settings:
    """The engine's defaults."""

    prompts_per_step: int = 32
    samples_per_prompt: int = 8
    max_new_tokens: int = 32
    lr: float = 2e-4
    max_grad_norm: float = 1.0
    clip: float = 0.2
    kl_coef: float = 0.02
    entropy_coef: float = 0.01
    std_floor: float = 1e-3


def load(folder):
    """Load a policy; padding is masked by length, so the pad token's embedding trains as well."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    model.get_input_embeddings().padding_idx = None
    return model


def logprobs_and_entropy(model, tokens_NT):
    """Entry t speaks about token t given tokens < t; entry 0 speaks about nothing and is 0."""
    logp_NTV = model(tokens_NT).logits.log_softmax(-1)[:, :-1]
    logp_NT = logp_NTV.gather(-1, tokens_NT[:, 1:, None])[..., 0]
    entropy_NT = -(logp_NTV.exp() * logp_NTV).sum(-1)
    return (torch.nn.functional.pad(x, (1, 0)) for x in (logp_NT, entropy_NT))


def group_advantages(reward_PG, std_floor):
    """The other samples of a prompt are the baseline: no critic is needed."""
    centred_PG = reward_PG - reward_PG.mean(1, keepdim=True)
    return centred_PG / reward_PG.std(1, keepdim=True).clamp_min(std_floor)


def grpo_loss(model, reference, tokens_NT, action_NT, advantage_N, settings):
    """Clipped objective + KL to the reference - entropy, each a mean over all action tokens."""
    logp_NT, entropy_NT = logprobs_and_entropy(model, tokens_NT)
    with torch.no_grad():
        ref_logp_NT, _ = logprobs_and_entropy(reference, tokens_NT)
    # One update a batch: the policy that sampled is the policy that learns, so the ratio is 1 and
    # only its gradient matters; the clip acts from the second update on.
    ratio_NT, a_N1 = (logp_NT - logp_NT.detach()).exp(), advantage_N[:, None]
    clipped_NT = ratio_NT.clamp(1 - settings.clip, 1 + settings.clip)
    gain_NT = torch.minimum(ratio_NT * a_N1, clipped_NT * a_N1)
    # KL: the value is k3 = exp(-d) - 1 + d, the gradient is that of d^2 / 2, which is unbiased.
    d_NT = logp_NT - ref_logp_NT
    k2_NT, k3_NT = d_NT.square() / 2, (-d_NT).exp() - 1 + d_NT
    kl_NT = k2_NT + (k3_NT - k2_NT).detach()
    loss_NT = -gain_NT + settings.kl_coef * kl_NT - settings.entropy_coef * entropy_NT
    return (loss_NT * action_NT).sum() / action_NT.sum()


@torch.no_grad()
def sample(model, prompt_ids, eos_id, settings, generator):
    """Draw G completions of one prompt, token by token; each ends at its first end-of-sequence."""
    tokens_GT = torch.tensor([prompt_ids] * settings.samples_per_prompt)
    for _ in range(settings.max_new_tokens):
        probability_GV = model(tokens_GT).logits[:, -1].softmax(-1)
        token_G = torch.multinomial(probability_GV, 1, generator=generator)[:, 0]
        tokens_GT = torch.cat((tokens_GT, token_G[:, None]), 1)
    answers = tokens_GT[:, len(prompt_ids) :].tolist()
    return [ids[: ids.index(eos_id) + 1] if eos_id in ids else ids for ids in answers]


def pack(prompts, answers):
    """Put prompts and answers side by side, padded on the right; only answer tokens may train."""
    pairs = list(zip(prompts, answers, strict=True))
    tokens = [torch.tensor([*prompt, *answer]) for prompt, answer in pairs]
    actions = [torch.tensor([0.0] * len(p) + [1.0] * len(a)) for p, a in pairs]
    return (torch.nn.utils.rnn.pad_sequence(rows, batch_first=True) for rows in (tokens, actions))


def score(reward, prompt, answer, tokenizer):
    """Return the scalar reward of one answer."""
    ended = answer[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(answer[:-1] if ended else answer)
    completion = Completion(
        prompt_id=prompt.id, sample=0, prompt_token_ids=(), policy_version=0, text=text,
        token_ids=tuple(answer), logprobs=(0.0,) * len(answer),
        stop=StopReason.EOS if ended else StopReason.LENGTH,
    )  # fmt: skip
    return reward.total(reward.score(prompt, completion))


def train_step(model, reference, optimizer, tokens_NT, action_NT, reward_PG, settings):
    """Update once; return the loss and the gradient norm before clipping."""
    advantage_N = group_advantages(reward_PG, settings.std_floor).flatten()
    loss = grpo_loss(model, reference, tokens_NT, action_NT, advantage_N, settings)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    optimizer.step()
    return loss.item(), norm.item()


def main(folder, steps):
    from transformers import AutoTokenizer

    from stepladder.rewards.registry import build_reward
    from stepladder.tasks.registry import build_task

    settings, generator = Settings(), torch.Generator().manual_seed(1)
    model = load(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reference = copy.deepcopy(model)
    task = build_task({"type": "arithmetic"})
    reward, prompts = build_reward({"type": "composite"}, task), task.prompts(Split.TRAIN)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(prompts), (settings.prompts_per_step,), generator=generator)
        asked, answers, rewards = [], [], []
        for prompt in (prompts[i] for i in chosen.tolist()):
            messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
            drawn = sample(model, ids, tokenizer.eos_token_id, settings, generator)
            asked += [ids] * len(drawn)
            answers += drawn
            rewards.append([score(reward, prompt, answer, tokenizer) for answer in drawn])
        batch, reward_PG = pack(asked, answers), torch.tensor(rewards)
        loss, norm = train_step(model, reference, optimizer, *batch, reward_PG, settings)
        print(f"step {step}: reward {reward_PG.mean():.3f}, loss {loss:.4f}, grad {norm:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
