"""The Sampler seam on the machine that trains: the training weights draw, so nothing is synced."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stepladder.core.errors import SpecError
from stepladder.core.prompt import Prompt
from stepladder.core.rollout import Completion, SamplingParams, StopReason
from stepladder.engine.policy import CausalPolicy
from stepladder.engine.text import TextCodec


class LocalSampler:
    """Draws completions from a policy in this process."""

    def __init__(self, policy: CausalPolicy, codec: TextCodec) -> None:
        self._policy = policy
        self._codec = codec
        self._encoded: dict[str, tuple[int, ...]] = {}
        self._version = 0

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Return a prompt's tokens, kept for the next time."""
        if prompt.id not in self._encoded:
            self._encoded[prompt.id] = self._codec.encode(prompt)
        return self._encoded[prompt.id]

    def refresh(self, version: int) -> None:
        """Note the weights' version; they are the trainer's own."""
        self._version = version

    def sample(
        self, prompts: Sequence[Prompt], counts: Sequence[int], params: SamplingParams
    ) -> list[list[Completion]]:
        """Return `counts[i]` completions for `prompts[i]`, in order.

        Raises
            SpecError: top_p below 1, whose log-probs would not be the policy's.
        """
        if params.top_p < 1:
            raise SpecError(
                "SL0103",
                f"is {params.top_p}: log-probs would not match the sampler's",
                "sampling.top_p",
                "leave it at 1.0 and lower the temperature instead",
            )
        token_ids = [self.encode(prompt) for prompt in prompts]
        drawn = self._policy.backbone.sample(
            token_ids,
            counts,
            max_new_tokens=params.max_new_tokens,
            temperature=params.temperature,
            eos_ids=self._codec.eos_ids,
            generator=torch.Generator().manual_seed(params.seed),
        )
        texts = self._codec.decode([one.token_ids for one in drawn])
        found: list[list[Completion]] = [[] for _ in prompts]
        for one, text in zip(drawn, texts, strict=True):
            group = found[one.prompt_index]
            completion = Completion(
                prompt_id=prompts[one.prompt_index].id,
                sample=len(group),
                prompt_token_ids=token_ids[one.prompt_index],
                token_ids=one.token_ids,
                logprobs=one.logprobs,
                stop=StopReason.EOS if one.stopped else StopReason.LENGTH,
                policy_version=self._version,
                text=text,
            )
            group.append(completion)
        return found
