"""Contradictions between settings of one run: path, what is wrong, how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepladder.spec.algorithm import (
    GROUP_ADVANTAGE_NAMES,
    AlgorithmSpec,
    PpoSpec,
    ReinforceSpec,
)

if TYPE_CHECKING:
    from stepladder.spec.run import RunSpec

Problem = tuple[str, str, str]


def run_problems(run: RunSpec) -> list[Problem]:
    """Return (path, what, fix) for every contradiction between settings."""
    found: list[Problem] = []
    group = run.sampling.samples_per_prompt
    if compares_samples(run.algorithm) and group < 2:
        found.append(
            (
                "sampling.samples_per_prompt",
                f"is {group}, but {run.algorithm.type} compares the samples of one prompt:"
                " with a group of 1 every advantage is 0",
                "set it to at least 2; 8 is the default",
            )
        )
    if run.sampling.top_p < 1:
        found.append(
            (
                "sampling.top_p",
                f"is {run.sampling.top_p}: training log-probs would not match the sampler's",
                "leave it at 1.0 and lower the temperature instead",
            )
        )
    if run.optim.warmup_steps >= run.budget.steps:
        found.append(
            (
                "optim.warmup_steps",
                f"is {run.optim.warmup_steps}, but the run has {run.budget.steps} steps:"
                " the learning rate would never reach its peak",
                f"set it below {run.budget.steps}, or raise budget.steps",
            )
        )
    found.extend(_batch_problems(run))
    found.extend(_algorithm_problems(run))
    found.extend(_control_problems(run))
    if run.eval.split == "train":
        found.append(
            (
                "eval.split",
                "is 'train': the score would be taken on prompts that the policy trains on",
                "use 'eval'",
            )
        )
    return found


def _batch_problems(run: RunSpec) -> list[Problem]:
    found: list[Problem] = []
    batch, group = run.batch_size, run.sampling.samples_per_prompt
    mini = run.optim.minibatch_size or batch
    if batch % mini:
        found.append(
            (
                "optim.minibatch_size",
                f"is {mini}, which does not divide the batch of {batch} rollouts"
                f" (prompts_per_step {run.sampling.prompts_per_step} x samples_per_prompt {group})",
                f"use a divisor of {batch}, such as {_near_divisor(batch, mini)}",
            )
        )
    micro = run.optim.microbatch_size or mini
    if not batch % mini and mini % micro:
        found.append(
            (
                "optim.microbatch_size",
                f"is {micro}, which does not divide the mini-batch of {mini} rollouts",
                f"use a divisor of {mini}, such as {_near_divisor(mini, micro)}",
            )
        )
    return found


def compares_samples(spec: AlgorithmSpec) -> bool:
    """Return whether the baseline is the group of one prompt's samples."""
    if isinstance(spec, ReinforceSpec):
        return spec.baseline == "group"
    return spec.type in GROUP_ADVANTAGE_NAMES


def _algorithm_problems(run: RunSpec) -> list[Problem]:
    found: list[Problem] = []
    spec, limit = run.algorithm, run.sampling.max_new_tokens
    if spec.overlong == "penalty" and spec.overlong_buffer > limit:
        found.append(
            (
                "algorithm.overlong_buffer",
                f"is {spec.overlong_buffer}, more than the {limit} tokens of a completion:"
                " every completion would be penalised",
                f"set it below {limit}; a quarter of it is usual",
            )
        )
    if isinstance(spec, PpoSpec) and spec.critic == "head":
        if spec.critic_warmup_steps:
            found.append(
                (
                    "algorithm.critic_warmup_steps",
                    f"is {spec.critic_warmup_steps}, but a value head shares the policy's weights:"
                    " it cannot learn alone",
                    "use critic = 'separate', or 0",
                )
            )
        if spec.critic_lr is not None:
            found.append(
                (
                    "algorithm.critic_lr",
                    "is set, but a value head is trained by the policy's optimiser",
                    "use critic = 'separate', or remove it and weigh with value_coef",
                )
            )
    if isinstance(spec, PpoSpec) and spec.critic_warmup_steps >= run.budget.steps:
        found.append(
            (
                "algorithm.critic_warmup_steps",
                f"is {spec.critic_warmup_steps}, but the run has {run.budget.steps} steps:"
                " the policy would never learn",
                f"set it below {run.budget.steps}",
            )
        )
    return found


def _control_problems(run: RunSpec) -> list[Problem]:
    found: list[Problem] = []
    kl, entropy = run.kl, run.entropy
    for path, low, high in (
        ("kl.coef_min", kl.coef_min, kl.coef_max),
        ("entropy.coef_min", entropy.coef_min, entropy.coef_max),
        ("entropy.target_low", entropy.target_low, entropy.target_high),
    ):
        if low > high:
            upper = path.replace("_min", "_max").replace("_low", "_high")
            found.append((path, f"is {low:g}, above {upper} ({high:g})", "swap them"))
    if kl.cap is not None and kl.cap_action == "raise" and kl.controller == "schedule":
        found.append(
            (
                "kl.cap_action",
                "is 'raise', but the schedule sets the coefficient anew at every step",
                "use 'restore', 'skip' or 'stop', or another controller",
            )
        )
    if kl.cap is not None and kl.controller == "adaptive" and kl.target > kl.cap:
        found.append(
            (
                "kl.target",
                f"is {kl.target:g}, above the cap of {kl.cap:g}: the cap would act for ever",
                "set the target below the cap",
            )
        )
    return found


def _near_divisor(total: int, wanted: int) -> int:
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))
