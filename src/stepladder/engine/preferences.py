"""Preferences: two completions of one prompt of which the gold reward pays one more.

Drawn from rollouts of a policy, kept as plain tokens, and packed for the reward model.
Axes: K preferences, N rows (2 a preference: chosen, rejected), T tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stepladder.core.errors import SpecError
from stepladder.core.prompt import Prompt
from stepladder.core.rng import seed_for
from stepladder.core.rollout import Completion, Rollout, RolloutGroup, SamplingParams
from stepladder.core.seams import Reward, Sampler
from stepladder.engine.batch import PackedRollouts
from stepladder.engine.prompts import PromptOrder
from stepladder.rewards.score import score_groups

PROMPTS_A_ROUND, SAMPLES_A_PROMPT = 32, 8
MIN_PAIRS_A_ROUND = 2
"""Fewer on average, and preferences would cost more rollouts than the run itself."""
PATIENCE = 4
"""Rounds before too few preferences end the search."""
TIE = 1e-9
"""Gold rewards nearer than this prefer nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Tokens of a prompt, of the completion that is preferred and of the other one."""

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]

    @property
    def flipped(self) -> Preference:
        """Return the opposite preference."""
        return replace(self, chosen_ids=self.rejected_ids, rejected_ids=self.chosen_ids)


def pair_up(
    groups: Sequence[RolloutGroup], rng: random.Random, gold_of: Callable[[Rollout], float]
) -> list[Preference]:
    """Return preferences in which no rollout stands twice; ties and faults give none."""
    found: list[Preference] = []
    for group in groups:
        waiting = [rollout for rollout in group.rollouts if rollout.failure is None]
        rng.shuffle(waiting)
        while waiting:
            first = waiting.pop()
            gold = gold_of(first)
            places = [at for at, r in enumerate(waiting) if abs(gold_of(r) - gold) > TIE]
            if not places:
                continue
            second = waiting.pop(places[-1])
            best, other = (first, second) if gold > gold_of(second) else (second, first)
            found.append(
                Preference(
                    prompt_ids=best.completion.prompt_token_ids,
                    chosen_ids=best.completion.token_ids,
                    rejected_ids=other.completion.token_ids,
                )
            )
    return found


def draw_preferences(
    gold: Reward,
    sampler: Sampler,
    prompts: Sequence[Prompt],
    count: int,
    params: SamplingParams,
) -> list[Preference]:
    """Return `count` preferences from fresh rollouts of the sampler's policy, no label flipped.

    Raises
        SpecError: the policy's completions hardly differ in gold reward.
    """
    found: list[Preference] = []
    order = PromptOrder(prompts, seed_for("preferences", params.seed))
    num_asked = min(PROMPTS_A_ROUND, len(prompts))
    for number in range(1, -(-count // MIN_PAIRS_A_ROUND) + 1):
        seed = seed_for("preferences", params.seed, number)
        asked = order.of_step(number, num_asked)
        drawn = sampler.sample(asked, [SAMPLES_A_PROMPT] * num_asked, replace(params, seed=seed))
        groups = score_groups(gold, asked, drawn)
        found.extend(pair_up(groups, random.Random(seed), lambda rollout: rollout.reward))
        if len(found) >= count:
            return found[:count]
        if number > PATIENCE and len(found) < MIN_PAIRS_A_ROUND * number:
            break
    raise SpecError(
        "SL0118",
        f"the gold reward tells only {len(found)} pairs of the base policy's completions apart,"
        f" of {count} asked for",
        "reward.pairs",
        "ask for fewer, take prompts that the policy sometimes gets right, or give"
        " the gold reward more terms",
    )


def with_flips(
    preferences: Sequence[Preference], share: float, rng: random.Random
) -> list[Preference]:
    """Return the preferences with `share` of them flipped, whichever completion is the better."""
    wrong = set(rng.sample(range(len(preferences)), round(share * len(preferences))))
    return [p.flipped if at in wrong else p for at, p in enumerate(preferences)]


def pack_preferences(preferences: Sequence[Preference]) -> PackedRollouts:
    """Return rows chosen, rejected, chosen, rejected, ...; a preference is a group."""
    rows = [(p.prompt_ids, ids) for p in preferences for ids in (p.chosen_ids, p.rejected_ids)]
    return pack_rows(rows, [at // 2 for at in range(len(rows))])


def pack_completions(completions: Sequence[Completion]) -> PackedRollouts:
    """Return completions as rows; neighbours that answer one prompt are a group."""
    rows = [(c.prompt_token_ids, c.token_ids) for c in completions]
    group_of, number = [], 0
    for at, (prompt_ids, _) in enumerate(rows):
        number += at > 0 and prompt_ids != rows[at - 1][0]
        group_of.append(number)
    return pack_rows(rows, group_of)


def pack_rows(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], group_of: Sequence[int]
) -> PackedRollouts:
    """Return (prompt, completion) tokens as rows to be read, without rewards or actions."""
    width = max(len(prompt_ids) + len(ids) for prompt_ids, ids in rows)
    tokens = [
        [*prompt_ids, *ids, *[0] * (width - len(prompt_ids) - len(ids))] for prompt_ids, ids in rows
    ]
    shape, num = (len(rows), width), len(rows)
    return PackedRollouts(
        tokens_NT=torch.tensor(tokens, dtype=torch.int64),
        action_NT=torch.zeros(shape, dtype=torch.bool),
        sampler_logp_NT=torch.zeros(shape),
        token_reward_NT=torch.zeros(shape),
        reward_N=torch.zeros(num),
        weight_N=torch.ones(num),
        group_N=torch.tensor(group_of),
        version_N=torch.zeros(num, dtype=torch.int64),
        prompt_length_N=torch.tensor([len(prompt_ids) for prompt_ids, _ in rows]),
        length_N=torch.tensor([len(prompt_ids) + len(ids) for prompt_ids, ids in rows]),
        terminal_N=torch.ones(num, dtype=torch.bool),
        truncated_N=torch.zeros(num, dtype=torch.bool),
    )


def to_tensors(preferences: Sequence[Preference]) -> dict[str, Tensor]:
    """Return preferences for a checkpoint: all tokens in a row, and the lengths [K, 3]."""
    parts = [(p.prompt_ids, p.chosen_ids, p.rejected_ids) for p in preferences]
    flat = [token for part in parts for ids in part for token in ids]
    lengths = [[len(ids) for ids in part] for part in parts]
    return {
        "tokens": torch.tensor(flat, dtype=torch.int32),
        "lengths": torch.tensor(lengths, dtype=torch.int32).reshape(-1, 3),
    }


def from_tensors(saved: Mapping[str, Tensor]) -> list[Preference]:
    """Return the preferences of `to_tensors`."""
    tokens, found, at = saved["tokens"].tolist(), [], 0
    for lengths in saved["lengths"].tolist():
        parts: list[tuple[int, ...]] = []
        for length in lengths:
            parts.append(tuple(tokens[at : at + length]))
            at += length
        found.append(Preference(prompt_ids=parts[0], chosen_ids=parts[1], rejected_ids=parts[2]))
    return found
