"""Evaluation on prompts that never train: pass@1 (and pass@k) with the counts behind it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stepladder.core.metrics import Mean, Metrics
from stepladder.core.prompt import Prompt
from stepladder.core.record import EvalRow
from stepladder.core.rng import seed_for
from stepladder.core.rollout import Rollout, RolloutGroup, SamplingParams
from stepladder.core.seams import Reward, Sampler
from stepladder.rewards.score import score_groups
from stepladder.spec.run import RunSpec

RIGHT = 1.0 - 1e-6
"""An outcome term from here on is a right answer; partial credit is none."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Everything one evaluation needs; the prompts are always the same ones."""

    prompts: Sequence[Prompt]
    sampler: Sampler
    reward: Reward
    run: RunSpec

    def evaluate(self, step: int, num_samples: int, num_tokens: int) -> tuple[EvalRow, float]:
        """Return the evaluation after `step` and the seconds it took."""
        started = time.perf_counter()
        counts = [self.run.eval.samples_per_prompt] * len(self.prompts)
        params = SamplingParams(
            max_new_tokens=self.run.sampling.max_new_tokens,
            temperature=self.run.eval.temperature,
            seed=seed_for("eval", self.run.seed, step),
        )
        completions = self.sampler.sample(self.prompts, counts, params)
        groups = score_groups(self.reward, self.prompts, completions)
        row = EvalRow(
            step=step,
            values=eval_values(groups),
            items={group.prompt.id: right_of(group) for group in groups},
            num_samples_seen=num_samples,
            num_tokens_seen=num_tokens,
        )
        return row, time.perf_counter() - started


def right_of(group: RolloutGroup) -> tuple[int, int]:
    """Return how many rollouts earned the whole outcome term, of how many that have one."""
    scores = [r.terms["outcome"] for r in group.rollouts if "outcome" in r.terms]
    return sum(score >= RIGHT for score in scores), len(scores)


def eval_values(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return the canonical eval metrics of scored groups; prompts nothing could grade are out."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    metrics = Metrics()
    counts = [(right, n) for right, n in map(right_of, groups) if n]
    metrics.add("eval/pass@1", Mean.of(right / n for right, n in counts))
    k = 2
    while counts and k <= min(n for _, n in counts):
        metrics.add(f"eval/pass@{k}", Mean.of(pass_at(k, right, n) for right, n in counts))
        k *= 2
    kept = [r for r in rollouts if r.failure is None]
    metrics.add("eval/reward_mean", Mean.of(r.reward for r in kept))
    metrics.add("eval/format_rate", format_rate(kept))
    metrics.add("eval/length_mean", Mean.of(len(r.completion.token_ids) for r in rollouts))
    metrics.add("eval/truncated_share", Mean.of(r.completion.stop.truncated for r in rollouts))
    return metrics.values()


def format_rate(rollouts: Sequence[Rollout]) -> Mean:
    """Return the share of rollouts with the full format term, over those that have one."""
    return Mean.of(r.terms["format"] >= RIGHT for r in rollouts if "format" in r.terms)


def pass_at(k: int, right: int, n: int) -> float:
    """Return the unbiased chance that k of n samples hold a right one (Chen et al. 2021)."""
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)
