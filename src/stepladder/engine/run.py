"""Execute one run: build its parts, resume or begin, train, leave the policy. Called by the worker.

The folder holds `checkpoints/` while training and `policy/`, a Hugging Face folder, at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from stepladder.core.errors import PluginError, SpecError
from stepladder.core.job import JobState
from stepladder.core.prompt import Prompt, Split
from stepladder.core.seams import Reward, Task
from stepladder.engine.algo.build import build_algorithm
from stepladder.engine.checkpoint import CheckpointStore
from stepladder.engine.control import build_controllers
from stepladder.engine.critic import build_critic
from stepladder.engine.evaluate import Evaluator
from stepladder.engine.guard import build_guard
from stepladder.engine.load import load_policy
from stepladder.engine.loop import train
from stepladder.engine.optim import Optimizer
from stepladder.engine.parts import Learner, Parts
from stepladder.engine.policy import CausalPolicy
from stepladder.engine.prompts import PromptOrder
from stepladder.engine.reference import build_base, build_reference
from stepladder.engine.restore import restore
from stepladder.engine.reward_model import attach_reward_model
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.seams import Observer, Recorder
from stepladder.engine.state import LoopState
from stepladder.engine.text import copy_tokenizer, load_codec, read_json
from stepladder.spec.algorithm import PpoSpec
from stepladder.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended."""

    state: JobState
    reason: str
    num_parameters: int
    final_step: int


def execute_run(  # noqa: PLR0913  (the seam between worker and engine)
    run: RunSpec,
    *,
    model_folder: Path,
    task: Task,
    reward: Reward,
    recorder: Recorder,
    observer: Observer,
    folder: Path,
    deadline: float | None = None,
    reset_optimizer: bool = False,
) -> RunEnd:
    """Train one policy, going on from the newest checkpoint in `folder` when there is one.

    `deadline` is a time of `time.time()`; past it the run stops, resumable. `reset_optimizer` goes
    on without the optimiser's state, which changes what follows, and says so in an event.

    Raises
        SpecError: a prompt is too long, or the model's folder cannot be loaded.
    """
    torch.set_flush_denormal(True)  # denormals cost up to 210x (performance.md 1)
    parts = build_parts(run, model_folder, task, reward, recorder, observer, folder)
    state = begin(parts, reset_optimizer=reset_optimizer)
    ended, reason = train(parts, state, deadline)
    export_policy(parts.learner.policy, model_folder, folder / "policy")
    return RunEnd(
        state=ended,
        reason=reason,
        num_parameters=parts.learner.policy.num_parameters,
        final_step=state.step,
    )


def build_parts(
    run: RunSpec,
    model_folder: Path,
    task: Task,
    reward: Reward,
    recorder: Recorder,
    observer: Observer,
    folder: Path,
) -> Parts:
    """Build everything a run works with, and refuse what cannot work."""
    policy = load_policy(model_folder, run.model, run.sampling.temperature)
    sampler = LocalSampler(policy, load_codec(model_folder))
    order = PromptOrder(split_prompts(task, Split.TRAIN), run.seed)
    eval_prompts = split_prompts(task, Split(run.eval.split))[: run.eval.num_prompts]
    steps = range(1, run.budget.steps + 1)
    used = (p for step in steps for p in order.of_step(step, run.sampling.prompts_per_step))
    limit = token_limit(run, model_folder)
    check_lengths(sampler, (*eval_prompts, *used), limit)
    return Parts(
        run=run,
        order=order,
        sampler=sampler,
        reward=reward,
        learner=build_learner(run, model_folder, policy),
        controllers=build_controllers(run),
        evaluator=Evaluator(eval_prompts, sampler, reward, run),
        checkpoints=CheckpointStore(
            folder / "checkpoints", run.checkpoint.keep, run.checkpoint.keep_best
        ),
        recorder=recorder,
        observer=observer,
        reward_model=attach_reward_model(reward, run, model_folder, sampler, order.prompts),
    )


def build_learner(run: RunSpec, model_folder: Path, policy: CausalPolicy) -> Learner:
    """Build what turns a batch into changed weights; the base policy is still the policy."""
    critic = build_critic(run, model_folder, policy)
    critic_optimizer = None
    if critic is not None and not critic.shared:
        assert isinstance(run.algorithm, PpoSpec)
        critic_optimizer = Optimizer(
            critic.named_parameters(), run.optim, run.budget.steps, lr=run.algorithm.critic_lr
        )
    weights = policy.named_parameters()
    optimizer = Optimizer(
        weights, run.optim, run.budget.steps, num_parameters=policy.num_parameters
    )
    return Learner(
        run=run,
        policy=policy,
        algorithm=build_algorithm(run),
        optimizer=optimizer,
        reference=build_reference(policy, run),
        base=build_base(policy, run),
        critic=critic,
        critic_optimizer=critic_optimizer,
        guard=build_guard(run.kl, weights, optimizer),
    )


def split_prompts(task: Task, split: Split) -> list[Prompt]:
    """Return a split's prompts.

    Raises
        PluginError: it has none.
    """
    prompts = list(task.prompts(split))
    if not prompts:
        raise PluginError("SL0510", f"has no prompt in the split {split.value!r}", task.name)
    return prompts


def token_limit(run: RunSpec, model_folder: Path) -> int:
    """Return the most tokens a prompt may have: the setting, and the room in the model."""
    positions = read_json(model_folder / "config.json").get("max_position_embeddings")
    if positions is None:
        return run.model.max_prompt_tokens
    room = int(positions) - run.sampling.max_new_tokens
    if room < 1:
        raise SpecError(
            "SL0132",
            f"is {run.sampling.max_new_tokens}, but the model has {positions} positions in all",
            "sampling.max_new_tokens",
            f"set it below {positions}",
        )
    return min(run.model.max_prompt_tokens, room)


def check_lengths(sampler: LocalSampler, prompts: Iterable[Prompt], limit: int) -> None:
    """Refuse prompts that are too long, before the first step.

    Raises
        SpecError: names the longest one.
    """
    lengths = {prompt.id: len(sampler.encode(prompt)) for prompt in prompts}
    longest = max(lengths, key=lambda name: lengths[name])
    if lengths[longest] > limit:
        over = sum(length > limit for length in lengths.values())
        raise SpecError(
            "SL0131",
            f"{over} of {len(lengths)} prompts are longer than {limit} tokens;"
            f" the longest, {longest}, has {lengths[longest]}",
            "model.max_prompt_tokens",
            "raise it (the model's positions less sampling.max_new_tokens bound it)"
            " or shorten the prompts",
        )


def begin(parts: Parts, *, reset_optimizer: bool = False) -> LoopState:
    """Return the state to go on from; rows that the checkpoint does not cover are dropped."""
    found = restore(parts, reset_optimizer=reset_optimizer)
    parts.recorder.truncate_after(-1 if found is None else found.step)
    step = 0 if found is None else found.step
    for damage in parts.checkpoints.damaged:
        parts.recorder.event("checkpoint_damaged", step, reason=damage)
    if found is not None:
        parts.recorder.event("resumed", step, num_samples=found.num_samples)
        if reset_optimizer:
            parts.recorder.event("optimizer_reset", step, reason="asked for by --reset-optimizer")
    return LoopState.start(parts.run) if found is None else found


def export_policy(policy: CausalPolicy, source: Path, target: Path) -> None:
    """Write the policy as a Hugging Face folder with its tokenizer; complete or not at all."""
    scratch = target.with_name(f".{target.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    policy.save_folder(scratch)
    copy_tokenizer(source, scratch)
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)
