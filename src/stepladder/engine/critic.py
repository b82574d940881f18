"""Critics of PPO: a value head on the policy, or a second network that starts from its weights.

The value of entry t is that of the state in which token t is chosen: it is read at place t - 1.
Axes: N rollouts, T tokens, A action tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from stepladder.engine.batch import PackedRollouts
from stepladder.engine.load import load_policy
from stepladder.engine.policy import VALUE_HEAD, Backbone, CausalPolicy, ValueHead, scatter
from stepladder.engine.seams import ValueModel
from stepladder.spec.algorithm import PpoSpec
from stepladder.spec.run import RunSpec


class SharedCritic:
    """The value head of the policy; its weights train with the policy's."""

    shared = True

    def __init__(self, policy: CausalPolicy) -> None:
        self._policy = policy
        if policy.value_head is None:
            policy.attach_value_head()

    def values(self, packed: PackedRollouts) -> Tensor:
        """Return value_NT, 0 where no action is."""
        value_NT = self._policy.logprobs(packed).value_NT
        assert value_NT is not None, "the policy lost its value head"
        return value_NT

    def last_values(self, packed: PackedRollouts) -> Tensor:
        """Return [N] the value of what follows the last token."""
        head = self._policy.value_head
        assert head is not None, "the policy lost its value head"
        return last_values(self._policy.backbone, head, packed)

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return nothing: the policy holds the head."""
        return {}


class SeparateCritic:
    """A copy of the base policy with a value head instead of its output layer."""

    shared = False

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._head = ValueHead(backbone)

    def values(self, packed: PackedRollouts) -> Tensor:
        """Return value_NT, 0 where no action is."""
        row_A, place_A = packed.action_NT.nonzero(as_tuple=True)
        hidden_AD = self._backbone.hidden_at(packed, row_A, place_A - 1)
        return scatter(self._head(hidden_AD), packed, row_A, place_A)

    def last_values(self, packed: PackedRollouts) -> Tensor:
        """Return [N] the value of what follows the last token."""
        return last_values(self._backbone, self._head, packed)

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return every weight that a value depends on: an untied output layer is none."""
        named = {n: p for n, p in self._backbone.model.named_parameters() if p.requires_grad}
        kept = {n: p for n, p in named.items() if n not in OUTPUT_LAYERS}
        return kept | {f"{VALUE_HEAD}{n}": p for n, p in self._head.named_parameters()}


OUTPUT_LAYERS = frozenset({"head", "lm_head.weight"})
"""Names of an untied output layer: ours and the usual one of transformers."""


@torch.no_grad()
def last_values(backbone: Backbone, head: ValueHead, packed: PackedRollouts) -> Tensor:
    """Return [N] the value after each rollout's last token."""
    row_N = torch.arange(packed.num_rollouts, device=packed.tokens_NT.device)
    return head(backbone.hidden_at(packed, row_N, packed.length_N - 1))


def build_critic(run: RunSpec, model_folder: Path, policy: CausalPolicy) -> ValueModel | None:
    """Return the critic that the algorithm asks for; None: it has none."""
    if not isinstance(run.algorithm, PpoSpec):
        return None
    if run.algorithm.critic == "head":
        return SharedCritic(policy)
    spec = run.model.model_copy(update={"lora": None})
    return SeparateCritic(load_policy(model_folder, spec, run.sampling.temperature).backbone)
