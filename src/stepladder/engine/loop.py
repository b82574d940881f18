"""The training loop: every stage by name, once a step. Called by `engine/run.py`.

collect -> prepare -> update -> measure -> evaluate -> record -> control -> observe -> checkpoint
groups     batch      stats     values     score       rows      knobs      action     full state
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from stepladder.core.control import Action, ActionKind
from stepladder.core.job import JobState
from stepladder.core.metrics import StepMetrics, split_finite
from stepladder.core.record import EvalRow
from stepladder.core.rng import seed_for
from stepladder.core.rollout import RolloutGroup, SamplingParams
from stepladder.engine.measure import UpdateStats, step_values
from stepladder.engine.parts import Parts
from stepladder.engine.prepare import prepare
from stepladder.engine.restore import save, take_up_weights
from stepladder.engine.state import LoopState
from stepladder.engine.update import update
from stepladder.rewards.score import score_groups
from stepladder.spec.run import RunSpec

LEAST_LR_SCALE = 1 / 64
"""Belts lower the learning rate no further: a run at its KL cap goes on, slowly, and says so."""


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
    if (ended := limits(run, state, None)) is not None:
        return ended
    while state.step < run.budget.steps:
        state.step += 1
        answered = one_step(parts, state)
        answered = answered or limits(run, state, deadline)
        if answered or due(state.step, run.checkpoint.every, run.budget.steps):
            save(parts, state)
        if answered is not None:
            return answered
    return JobState.DONE, ""


def one_step(parts: Parts, state: LoopState) -> tuple[JobState, str] | None:
    """Take one training step; return how the run ends, or None to go on."""
    run, clock = parts.run, Clock()
    is_evaluated = due(state.step, run.eval.every, run.budget.steps)
    groups = collect(parts, state, clock)
    with clock.stage("train"):
        batch = prepare(groups, parts.learner, state.knobs)
        stats = update(batch, parts.learner, state.knobs, state.step, measure_change=is_evaluated)
    values = step_values(groups, batch, stats, state.knobs, state.policy_version)
    count(state, groups, stats)
    if is_evaluated:
        values |= evaluate(parts, state, clock).values
    metrics = step_metrics(state, values, clock)
    record(parts, state, metrics, groups, stats)
    ended = control(parts, state, metrics, groups, stats)
    return obey(parts.observer(metrics), parts, state) or ended


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
    # A critic's warm-up has no policy update, and none that was left out.
    nothing = bool(stats.updates) and stats.num_skipped == len(stats.updates)
    state.steps_without_update = state.steps_without_update + 1 if nothing else 0
    if nothing:
        reasons = {update.reason for update in stats.updates}
        state.skip_reasons = tuple(sorted(reasons))
    state.policy_version += any(update.applied for update in stats.updates)


def evaluate(parts: Parts, state: LoopState, clock: Clock) -> EvalRow:
    """Evaluate on held-out prompts and record it."""
    parts.sampler.refresh(state.policy_version)
    with clock.stage("eval"):
        row, seconds = parts.evaluator.evaluate(state.step, state.num_samples, state.num_tokens)
    parts.recorder.evaluation(row, {"time_eval_s": seconds})
    if "eval/pass@1" in row.values:
        kept = (*state.scores, row.values["eval/pass@1"])
        state.scores = kept[-parts.run.eval.window :]
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
        reasons = ", ".join(sorted({u.reason for u in stats.updates if not u.applied}))
        parts.recorder.event(
            "update_skipped", state.step, num_updates=stats.num_skipped, reason=reasons
        )
    if state.dense or (spec.rollouts_every and state.step % spec.rollouts_every == 0):
        num_groups = -(-spec.rollouts_per_dump // parts.run.sampling.samples_per_prompt)
        kept = groups[:num_groups]
        parts.recorder.rollouts(state.step, kept if spec.store_text else without_text(kept))


def control(
    parts: Parts,
    state: LoopState,
    metrics: StepMetrics,
    groups: Sequence[RolloutGroup],
    stats: UpdateStats,
) -> tuple[JobState, str] | None:
    """Let belts and controllers move the knobs of the next step; return how the run ends, if so."""
    kl, events, stops = parts.run.kl, list(stats.events), [stats.stop]
    scale = state.knobs.lr_scale
    lowered = max(scale * stats.lr_factor, min(scale, LEAST_LR_SCALE))
    state.knobs = replace(state.knobs, lr_scale=lowered)
    if stats.kl_coef_factor != 1.0:
        raised = max(state.knobs.kl_coef, kl.coef_min) * stats.kl_coef_factor
        state.knobs = replace(state.knobs, kl_coef=min(raised, kl.coef_max))
    for controller in parts.controllers:
        answer = controller.update(state.knobs, metrics, groups)
        state.knobs = answer.knobs
        events.extend(answer.events)
        stops.append(answer.stop)
    for moved in (
        parts.learner.reference and parts.learner.reference.after_step(state.step),
        parts.reward_model and parts.reward_model.after_step(state.step, groups),
    ):
        if moved:
            events.append(moved)
    for event in events:
        parts.recorder.event(event.kind, state.step, **event.details)
    reason = next((why for why in stops if why), None)
    if reason is None:
        return None
    state.stopped_for_good = reason
    parts.recorder.event("stop", state.step, reason=reason)
    return JobState.STOPPED, reason


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
    found = parts.checkpoints.load_latest()
    if found is not None:
        take_up_weights(parts, found)
    return found is not None


def limits(run: RunSpec, state: LoopState, deadline: float | None) -> tuple[JobState, str] | None:
    """Return how the run ends when it cannot or may not go on."""
    if state.stopped_for_good is not None:
        return JobState.STOPPED, state.stopped_for_good
    if state.steps_without_update >= run.optim.max_skipped_steps:
        steps = state.steps_without_update
        if state.skip_reasons == ("non_finite",):
            return JobState.STOPPED, f"no finite gradient in {steps} steps in a row"
        why = ", ".join(state.skip_reasons)
        return JobState.STOPPED, f"no update was applied in {steps} steps in a row: {why}"
    if deadline is not None and time.time() > deadline and state.step < run.budget.steps:
        return JobState.STOPPED, "deadline reached"
    return None
