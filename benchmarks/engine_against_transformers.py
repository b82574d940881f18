"""Time our sampler and training pass against transformers on the same model, rows and threads.

Run: python benchmarks/engine_against_transformers.py. Prints JSON; every figure is a ratio
(transformers' seconds over ours) from alternating runs in this one process. One thread.
Axes: N rollouts, T tokens.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import AutoModelForCausalLM

from stepladder.core.prompt import Split, make_prompt
from stepladder.core.rollout import Completion, Rollout, RolloutGroup, StopReason
from stepladder.engine.batch import PackedRollouts, pack
from stepladder.engine.llama import CompactLlama
from stepladder.engine.policy import CausalPolicy, CompactBackbone
from stepladder.engine.sampler import sample_tokens
from stepladder.spec.ladder import LADDER, ladder_config

NUM_PROMPTS, SAMPLES, PROMPT_TOKENS, NEW_TOKENS, REPEATS = 32, 8, 18, 16, 5


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> dict[str, float]:
    """Return the median of paired ratios, after one unmeasured run of each."""
    ours()
    theirs()
    pairs = [(seconds(theirs), seconds(ours)) for _ in range(REPEATS)]
    return {
        "ratio": round(statistics.median(a / b for a, b in pairs), 2),
        "ours_s": round(statistics.median(b for _, b in pairs), 4),
        "transformers_s": round(statistics.median(a for a, _ in pairs), 4),
    }


def rollouts(prompts: list[list[int]], vocabulary: int) -> PackedRollouts:
    """Return full-length random rollouts: nothing is equal, so nothing is folded."""
    generator = torch.Generator().manual_seed(0)
    groups = []
    for index, ids in enumerate(prompts):
        prompt = make_prompt(str(index), "", Split.TRAIN)
        members = []
        for sample in range(SAMPLES):
            drawn = torch.randint(vocabulary, (NEW_TOKENS,), generator=generator).tolist()
            completion = Completion(
                prompt_id=prompt.id,
                sample=sample,
                prompt_token_ids=tuple(ids),
                token_ids=tuple(drawn),
                logprobs=(0.0,) * NEW_TOKENS,
                stop=StopReason.LENGTH,
                policy_version=0,
                text="",
            )
            members.append(Rollout(prompt=prompt, completion=completion, terms={}, reward=0.0))
        groups.append(RolloutGroup(group_id=index, prompt=prompt, rollouts=tuple(members)))
    return pack(groups)


def compare(name: str) -> dict[str, dict[str, float]]:
    """Return the sampling and training ratios of one ladder size."""
    config = ladder_config(LADDER[name])
    ours = CompactLlama.from_config(config, seed=0)
    vocabulary = config["vocab_size"]
    generator = torch.Generator().manual_seed(1)
    shape = (NUM_PROMPTS, PROMPT_TOKENS)
    prompts = torch.randint(8, vocabulary, shape, generator=generator).tolist()
    with tempfile.TemporaryDirectory() as folder:
        ours.save_folder(Path(folder))
        theirs = AutoModelForCausalLM.from_pretrained(folder)
    policy = CausalPolicy(CompactBackbone(ours), temperature=1.0)
    packed = rollouts(prompts, vocabulary)
    input_NT = torch.tensor(prompts).repeat_interleave(SAMPLES, 0)

    def sample_ours() -> None:
        sample_tokens(
            ours,
            prompts,
            [SAMPLES] * NUM_PROMPTS,
            max_new_tokens=NEW_TOKENS,
            temperature=1.0,
            eos_ids=[],
            generator=torch.Generator().manual_seed(2),
        )

    def sample_theirs() -> None:
        theirs.generate(
            input_NT,
            attention_mask=torch.ones_like(input_NT),
            do_sample=True,
            top_k=0,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            pad_token_id=0,
        )

    def train_ours() -> None:
        policy.logprobs(packed).logp_NT.sum().backward()

    def train_theirs() -> None:
        logits_NTV = theirs(packed.tokens_NT).logits[:, PROMPT_TOKENS - 1 : -1]
        target_NT = packed.tokens_NT[:, PROMPT_TOKENS:]
        logp_NTV = torch.log_softmax(logits_NTV.float(), -1)
        logp_NTV.gather(2, target_NT[..., None]).sum().backward()

    return {
        "sampling": ratio(sample_ours, sample_theirs),
        "training": ratio(train_ours, train_theirs),
    }


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    work = f"{NUM_PROMPTS}x{SAMPLES}, prompt {PROMPT_TOKENS}, {NEW_TOKENS} new tokens, 1 thread"
    found = {name: compare(name) for name in LADDER}
    print(json.dumps({"schema": 1, "work": work, "sizes": found}, indent=2))


if __name__ == "__main__":
    main()
