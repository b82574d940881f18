"""The batch types and the one function that turns ragged rollouts into padded tensors.

Legend: P prompts, G samples a prompt, N rollouts (<= P x G), T padded length.
Alignment, stated once: entry t speaks about token t given tokens < t. Column 0 is never an action.
Groups stay contiguous (`group_N` is non-decreasing), so that a policy may share their prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from stepladder.core.rollout import Rollout, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """What a policy says of action tokens; 0 elsewhere."""

    logp_NT: Tensor
    entropy_NT: Tensor
    """Exact, over the whole vocabulary, at the sampling temperature."""
    value_NT: Tensor | None = None
    """Value of the state in which the token was chosen; None: no value head or critic was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRollouts:
    """Rollouts as tensors, before credit is assigned."""

    tokens_NT: Tensor
    """int64; prompt and completion, right-padded with 0."""
    action_NT: Tensor
    """bool; tokens that the policy chose and that may train."""
    sampler_logp_NT: Tensor
    """float32; by the sampler that drew them."""
    token_reward_NT: Tensor
    """float32; rewards that belong to one token, such as KL in the reward and per-turn rewards."""
    reward_N: Tensor
    """float32; scalar reward."""
    weight_N: Tensor
    """float32; 0 masks a rollout (no reward could be computed)."""
    group_N: Tensor
    """int64; index of the group, non-decreasing."""
    version_N: Tensor
    """int64; policy version that sampled it."""
    prompt_length_N: Tensor
    """int64; tokens of the prompt."""
    length_N: Tensor
    """int64; tokens of prompt and completion."""
    terminal_N: Tensor
    """bool; ended by itself."""
    truncated_N: Tensor
    """bool; cut at the token limit."""
    old_logp_NT: Tensor | None = None
    """By the trainer before the first update; None: one update, the ratio is 1 by definition."""
    ref_logp_NT: Tensor | None = None
    """By the reference policy; None: no reference is kept."""
    value_NT: Tensor | None = None
    """By the critic before the first update; None: the algorithm has none."""
    last_value_N: Tensor | None = None
    """Value of what follows the last token, where a truncated rollout is bootstrapped; else 0."""
    base_logp_NT: Tensor | None = None
    """By the base policy, where a KL budget is kept and the reference moves."""
    kl_reward_N: Tensor | None = None
    """Reward added for the KL to the reference (never positive with k2 and k3); None: not there."""
    overlong_N: Tensor | None = None
    """bool; penalised or masked for its length; None: neither is asked for."""

    @property
    def num_rollouts(self) -> int:
        """Return N."""
        return self.tokens_NT.shape[0]

    @property
    def mask_NT(self) -> Tensor:
        """Return float weights of action tokens; these sum to the loss's normaliser."""
        return self.action_NT * self.weight_N[:, None]

    def rows(self, index: Tensor | slice) -> PackedRollouts:
        """Return some rollouts, in the same order and at the same padded length."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v[index] for k, v in tensors.items() if v is not None})

    def to(self, device: torch.device) -> PackedRollouts:
        """Return the batch on another device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(device) for k, v in tensors.items() if v is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Credit of each action token; 0 elsewhere."""

    advantage_NT: Tensor
    return_NT: Tensor | None = None
    """Critic targets; None without a critic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBatch:
    """Packed rollouts with their credit: what a loss is computed on."""

    packed: PackedRollouts
    advantage_NT: Tensor
    return_NT: Tensor | None = None
    loss_weight_NT: Tensor | None = None
    """What a token's loss counts in its update; the same whatever the micro-batch. Set by update."""

    def rows(self, index: Tensor | slice) -> RolloutBatch:
        """Return some rollouts, in the same order."""
        weights = self.loss_weight_NT
        return RolloutBatch(
            packed=self.packed.rows(index),
            advantage_NT=self.advantage_NT[index],
            return_NT=None if self.return_NT is None else self.return_NT[index],
            loss_weight_NT=None if weights is None else weights[index],
        )


def pack(groups: Sequence[RolloutGroup]) -> PackedRollouts:
    """Return the groups' rollouts as padded tensors; rollouts without a token are left out."""
    rollouts, group_of = [], []
    for index, group in enumerate(groups):
        kept = [rollout for rollout in group.rollouts if rollout.completion.token_ids]
        rollouts.extend(kept)
        group_of.extend([index] * len(kept))
    completions = [rollout.completion for rollout in rollouts]
    prompt_lengths = [len(c.prompt_token_ids) for c in completions]
    lengths = [len(c.prompt_token_ids) + len(c.token_ids) for c in completions]
    assert min(prompt_lengths) > 0, "a prompt has no token: column 0 would be an action"
    width = max(lengths)
    tokens = [_padded((*c.prompt_token_ids, *c.token_ids), width, 0) for c in completions]
    logps = [
        _padded((*[0.0] * start, *c.logprobs), width, 0.0)
        for c, start in zip(completions, prompt_lengths, strict=True)
    ]
    actions = [
        _padded((*[False] * start, *(c.action_mask or [True] * len(c.token_ids))), width, False)
        for c, start in zip(completions, prompt_lengths, strict=True)
    ]
    return PackedRollouts(
        tokens_NT=torch.tensor(tokens, dtype=torch.int64),
        action_NT=torch.tensor(actions, dtype=torch.bool),
        sampler_logp_NT=torch.tensor(logps, dtype=torch.float32),
        token_reward_NT=_turn_rewards(rollouts, width),
        reward_N=torch.tensor([r.reward for r in rollouts], dtype=torch.float32),
        weight_N=torch.tensor([float(r.failure is None) for r in rollouts], dtype=torch.float32),
        group_N=torch.tensor(group_of),
        version_N=torch.tensor([c.policy_version for c in completions]),
        prompt_length_N=torch.tensor(prompt_lengths),
        length_N=torch.tensor(lengths),
        terminal_N=torch.tensor([c.stop == "eos" for c in completions]),
        truncated_N=torch.tensor([c.stop.truncated for c in completions]),
    )


def _padded(values: Sequence[float], width: int, fill: float) -> list[float]:
    return [*values, *[fill] * (width - len(values))]


def _turn_rewards(rollouts: Sequence[Rollout], width: int) -> Tensor:
    token_reward_NT = torch.zeros(len(rollouts), width)
    for row, rollout in enumerate(rollouts):
        start = len(rollout.completion.prompt_token_ids)
        for turn in rollout.completion.turns:
            token_reward_NT[row, start + turn.end - 1] += turn.reward
    return token_reward_NT
