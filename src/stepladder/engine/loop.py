"""The training loop: every stage by name, once a step. Called by `engine/run.py`.

collect -> prepare -> update -> measure -> record -> evaluate -> observe -> checkpoint
groups     batch      stats     values     rows      score       action     full state
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stepladder.core.control import Action, ActionKind
from stepladder.core.job import JobState
from stepladder.core.metrics import StepMetrics, split_finite
from stepladder.core.record import EvalRow
from stepladder.core.rng import seed_for
from stepladder.core.rollout import RolloutGroup, SamplingParams
from stepladder.core.seams import Reward, Sampler
from stepladder.engine.checkpoint import CheckpointStore
from stepladder.engine.evaluate import Evaluator
from stepladder.engine.measure import UpdateStats, step_values
from stepladder.engine.optim import Optimizer
from stepladder.engine.policy import CausalPolicy
from stepladder.engine.prompts import PromptOrder
from stepladder.engine.restore import restore, save
from stepladder.engine.seams import Algorithm, FrozenPolicy, Observer, Recorder
from stepladder.engine.state import LoopState
from stepladder.engine.update import prepare, update
from stepladder.rewards.score import score_groups
from stepladder.spec.run import RunSpec

MAX_STEPS_WITHOUT_UPDATE = 5
"""After so many steps in a row without one finite gradient, waiting cannot help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop works with; nothing here changes during a run but weights and moments."""

    run: RunSpec
    order: PromptOrder
    sampler: Sampler
    reward: Reward
    policy: CausalPolicy
    reference: FrozenPolicy | None
    algorithm: Algorithm
    optimizer: Optimizer
    evaluator: Evaluator
    checkpoints: CheckpointStore
    recorder: Recorder
    observer: Observer


class Clock:
    """Seconds by stage of one step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Add the time of the block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def train(parts: Parts, state: LoopState, deadline: float | None = None) -> tuple[JobState, str]:
    """Train until the budget is spent or someone asks to stop; return the state and its reason.

    `deadline` is a time of `time.time()`; past it the run stops after the step, resumable.
    """
    run = parts.run
    if state.step == 0:
        row = evaluate(parts, state, Clock())
        metrics = step_metrics(state, dict(row.values), Clock())
        answered = obey(parts.observer(metrics), parts, state)
        if answered is not None:
            return answered
    # A session that was killed after its last checkpoint may have been at its end already.
    if (ended := limits(state, None, run.budget.steps)) is not None:
        return ended
    while state.step < run.budget.steps:
        state.step += 1
        clock = Clock()
        groups = collect(parts, state, clock)
        with clock.stage("train"):
            batch = prepare(
                groups, run, parts.policy, parts.reference, parts.algorithm, state.knobs
            )
            rate = parts.optimizer.learning_rate(state.step, state.knobs.lr_scale)
            stats = update(
                batch, run, parts.policy, parts.algorithm, parts.optimizer, state.knobs, rate
            )
        values = step_values(groups, batch, stats, state.knobs, state.policy_version)
        count(state, groups, stats)
        if due(state.step, run.eval.every, run.budget.steps):
            values |= evaluate(parts, state, clock).values
        metrics = step_metrics(state, values, clock)
        record(parts, state, metrics, groups, stats)
        answered = obey(parts.observer(metrics), parts, state)
        answered = answered or limits(state, deadline, run.budget.steps)
        if answered or due(state.step, run.checkpoint.every, run.budget.steps):
            save(parts.checkpoints, parts.policy, parts.optimizer, state)
        if answered is not None:
            return answered
    return JobState.DONE, ""


def due(step: int, every: int, last: int) -> bool:
    """Return whether something that happens every so many steps, and at the last, is due."""
    return step % every == 0 or step == last


def collect(parts: Parts, state: LoopState, clock: Clock) -> list[RolloutGroup]:
    """Draw and score the rollouts of a step."""
    sampling = parts.run.sampling
    prompts = parts.order.of_step(state.step, sampling.prompts_per_step)
    by_prompt = state.knobs.samples_by_prompt
    counts = [by_prompt.get(prompt.id, sampling.samples_per_prompt) for prompt in prompts]
    params = SamplingParams(
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=seed_for("sample", parts.run.seed, state.step),
    )
    parts.sampler.refresh(state.policy_version)
    with clock.stage("rollout"):
        completions = parts.sampler.sample(prompts, counts, params)
    with clock.stage("reward"):
        return score_groups(parts.reward, prompts, completions)


def count(state: LoopState, groups: Sequence[RolloutGroup], stats: UpdateStats) -> None:
    """Move the counters past a step."""
    completions = [rollout.completion for group in groups for rollout in group.rollouts]
    state.num_samples += len(completions)
    state.num_tokens += sum(len(c.prompt_token_ids) + len(c.token_ids) for c in completions)
    state.num_updates += len(stats.updates) - stats.num_skipped
    state.num_skipped += stats.num_skipped
    nothing = stats.num_skipped == len(stats.updates)
    state.steps_without_update = state.steps_without_update + 1 if nothing else 0
    state.policy_version += not nothing


def evaluate(parts: Parts, state: LoopState, clock: Clock) -> EvalRow:
    """Evaluate on held-out prompts and record it."""
    parts.sampler.refresh(state.policy_version)
    with clock.stage("eval"):
        row, seconds = parts.evaluator.evaluate(state.step, state.num_samples, state.num_tokens)
    parts.recorder.evaluation(row, {"time_eval_s": seconds})
    return row


def step_metrics(state: LoopState, values: dict[str, float], clock: Clock) -> StepMetrics:
    """Return the step's metrics; what a clock or the machine says goes to `system` only."""
    finite, non_finite = split_finite(values)
    system = {f"time_{stage}_s": seconds for stage, seconds in clock.seconds.items()}
    busy = sum(seconds for stage, seconds in clock.seconds.items() if stage != "eval")
    if busy:
        system |= {"time_step_s": busy, "rollout_share": clock.seconds["rollout"] / busy}
    system["memory_bytes"] = peak_memory_bytes()
    return StepMetrics(
        step=state.step,
        values=dict(sorted(finite.items())),
        system=system,
        num_samples=state.num_samples,
        num_tokens=state.num_tokens,
        non_finite=non_finite,
    )


def peak_memory_bytes() -> float:
    """Return the process's peak resident memory; getrusage counts KiB, on macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def record(
    parts: Parts,
    state: LoopState,
    metrics: StepMetrics,
    groups: Sequence[RolloutGroup],
    stats: UpdateStats,
) -> None:
    """Write the step's row, its rollouts when due, and skipped updates as an event."""
    spec = parts.run.record
    parts.recorder.step(metrics)
    if stats.num_skipped:
        parts.recorder.event("update_skipped", state.step, num_updates=stats.num_skipped)
    if state.dense or (spec.rollouts_every and state.step % spec.rollouts_every == 0):
        num_groups = -(-spec.rollouts_per_dump // parts.run.sampling.samples_per_prompt)
        kept = groups[:num_groups]
        parts.recorder.rollouts(state.step, kept if spec.store_text else without_text(kept))


def without_text(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
    """Return the groups without the text of prompts and completions."""
    bare = []
    for group in groups:
        prompt = replace(group.prompt, messages=(), gold="", extra={})
        rollouts = tuple(
            replace(r, prompt=prompt, completion=replace(r.completion, text=""))
            for r in group.rollouts
        )
        bare.append(replace(group, prompt=prompt, rollouts=rollouts))
    return bare


def obey(action: Action, parts: Parts, state: LoopState) -> tuple[JobState, str] | None:
    """Do what an observer asked; return how the run ends, or None to go on."""
    if action.kind is ActionKind.CONTINUE:
        return None
    parts.recorder.event(action.kind.value, state.step, reason=action.reason)
    if action.knobs is not None:
        state.knobs = action.knobs
    if action.kind is ActionKind.STOP:
        state.stopped_for_good = None if action.resumable else action.reason
        return JobState.STOPPED, action.reason
    if action.kind is ActionKind.DENSIFY:
        state.dense = True
    if action.kind is ActionKind.RESTORE and not restore_weights(parts):
        parts.recorder.event("restore_impossible", state.step, reason="no checkpoint yet")
    return None


def restore_weights(parts: Parts) -> bool:
    """Take up weights and moments of the newest checkpoint; steps and records go on."""
    return restore(parts.checkpoints, parts.policy, parts.optimizer) is not None


def limits(state: LoopState, deadline: float | None, last: int) -> tuple[JobState, str] | None:
    """Return how the run ends when it cannot or may not go on."""
    if state.stopped_for_good is not None:
        return JobState.STOPPED, state.stopped_for_good
    if state.steps_without_update >= MAX_STEPS_WITHOUT_UPDATE:
        steps = state.steps_without_update
        return JobState.STOPPED, f"no finite gradient in {steps} steps in a row"
    if deadline is not None and time.time() > deadline and state.step < last:
        return JobState.STOPPED, "deadline reached"
    return None
