"""Builders of valid values for tests; every argument has a default."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepladder.core.job import Job, JobKind, JobState, JobStatus
from stepladder.core.prompt import Message, Prompt, Split, prompt_id
from stepladder.core.rollout import Completion, Rollout, RolloutGroup, StopReason
from stepladder.spec.load import Loaded
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec
from stepladder.study.cell import Cell, Plan, StepCost
from stepladder.study.plan import make_plan as plan_study


def make_prompt(text: str = "1+1=", gold: str = "2", split: Split = Split.TRAIN) -> Prompt:
    messages = (Message(role="user", content=text),)
    return Prompt(
        id=prompt_id(messages), messages=messages, gold=gold, split=split, data_source="test"
    )


def make_completion(
    text: str = "<answer>2</answer>",
    *,
    prompt: Prompt | None = None,
    sample: int = 0,
    length: int = 4,
    stop: StopReason = StopReason.EOS,
) -> Completion:
    return Completion(
        prompt_id=(prompt or make_prompt()).id,
        sample=sample,
        prompt_token_ids=(1, 2),
        token_ids=tuple(range(length)),
        logprobs=(-0.5,) * length,
        stop=stop,
        policy_version=0,
        text=text,
    )


def make_rollout(
    reward: float = 1.0,
    *,
    prompt: Prompt | None = None,
    sample: int = 0,
    length: int = 4,
    stop: StopReason = StopReason.EOS,
    failure: str | None = None,
) -> Rollout:
    prompt = prompt or make_prompt()
    return Rollout(
        prompt=prompt,
        completion=make_completion(prompt=prompt, sample=sample, length=length, stop=stop),
        terms={"outcome": reward},
        reward=reward,
        failure=failure,
    )


def make_group(rewards: Sequence[float] = (1.0, 0.0), group_id: int = 0) -> RolloutGroup:
    prompt = make_prompt(f"{group_id}+1=")
    rollouts = tuple(
        make_rollout(reward, prompt=prompt, sample=i) for i, reward in enumerate(rewards)
    )
    return RolloutGroup(group_id=group_id, prompt=prompt, rollouts=rollouts)


def make_study(**settings: Any) -> StudySpec:
    """Build a StudySpec; `base` may be a mapping of RunSpec sections."""
    return StudySpec.model_validate(settings)


def make_loaded(spec: StudySpec | None = None, **settings: Any) -> Loaded[StudySpec]:
    spec = spec or make_study(**settings)
    return Loaded(spec, dict.fromkeys(spec.leaves(), "default"), None)


def make_plan(
    spec: StudySpec | None = None,
    *,
    costs: Mapping[str, StepCost] | None = None,
    budget_s: float | None = None,
    num_slots: int = 2,
    **settings: Any,
) -> Plan:
    return plan_study(
        make_loaded(spec, **settings),
        costs=costs,
        budget_s=budget_s,
        num_slots=num_slots,
        created="2026-01-01T00:00:00+00:00",
    )


def make_small_plan(**settings: Any) -> Plan:
    """Build a plan of four cells: two seeds of the base and of ladder-x2."""
    small: dict[str, Any] = {
        "axes": {"model": ["ladder-x1", "ladder-x2"], "samples_per_prompt": [8]},
        "rules": {"control": False},
        "long_run": {"ratio": 1},
        "seeds": [1, 2],
    }
    return make_plan(**{**small, **settings})


def make_cell(seed: int = 1, **settings: Any) -> Cell:
    cells = make_small_plan(**settings).cells
    return next(cell for cell in cells if cell.seed == seed)


def make_cost(step_s: float = 0.2, **changed: Any) -> StepCost:
    fields: dict[str, Any] = {
        "step_s": step_s,
        "eval_s": 0.3,
        "start_s": 3.0,
        "num_parameters": 100_000,
        "bytes_per_checkpoint": 1_000_000,
    }
    return StepCost(**{**fields, **changed})


def make_costs(scale: float = 1.0) -> dict[str, StepCost]:
    """Build what is measured for the default study."""
    seconds = {"ladder-x1/g8": 0.15, "ladder-x2/g8": 0.2, "ladder-x4/g8": 0.3, "ladder-x1/g16": 0.2}
    return {kind: make_cost(step_s * scale) for kind, step_s in seconds.items()}


def write_run(
    folder: Path,
    run: RunSpec,
    *,
    state: str = "done",
    reason: str = "",
    scores: Mapping[int, float] | None = None,
    num_steps: int = 4,
) -> None:
    """Write a run folder as a worker would have left it."""
    folder.mkdir(parents=True, exist_ok=True)
    scores = {0: 0.25, 2: 0.5, 4: 0.75} if scores is None else scores
    header = {
        "format_version": 1,
        "run_id": run.run_id,
        "state": state,
        "reason": reason,
        "settings": run.leaves(),
        "num_parameters": 1234,
        "sessions": [{"id": "a", "started": "2026-01-01T00:00:00+00:00", "from_step": None}],
    }
    (folder / "run.json").write_text(json.dumps(header))
    metrics = [
        {
            "step": step,
            "m": {"reward_mean": 0.1 * step, "kl_ref": 0.01},
            "nan": [],
            "num_samples": 256 * step,
            "num_tokens": 1000 * step,
            "sys": {"t": 0.0, "time_step_s": 0.5, "memory_bytes": 1e8},
        }
        for step in range(1, num_steps + 1)
    ]
    evals = [
        {
            "step": step,
            "m": {"eval/pass@1": score},
            "nan": [],
            "items": {"p": [1, 2]},
            "num_samples": 256 * step,
            "num_tokens": 1000 * step,
            "sys": {"t": 0.0, "time_eval_s": 0.25},
        }
        for step, score in scores.items()
    ]
    for name, rows in (("metrics.jsonl", metrics), ("evals.jsonl", evals)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


class FakeFolder:
    """A study folder that keeps its events in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []

    def event(self, kind: str, **details: Any) -> None:
        self.events.append({"kind": kind, **details})


class FakeLauncher:
    """A launcher whose jobs end at the second poll, as `outcomes` says by job id."""

    def __init__(self, outcomes: Mapping[str, Sequence[str]] | None = None) -> None:
        self.outcomes = {job: list(states) for job, states in (outcomes or {}).items()}
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.most_at_once = 0
        self._jobs: dict[str, tuple[Job, int]] = {}

    def submit(self, job: Job) -> str:
        self.submitted.append(job.id)
        self._jobs[job.id] = (job, 0)
        self.most_at_once = max(self.most_at_once, len(self._jobs))
        return job.id

    def poll(self, handle: str) -> JobStatus:
        job, polls = self._jobs[handle]
        if polls == 0:
            self._jobs[handle] = (job, 1)
            return JobStatus(state=JobState.RUNNING)
        states = self.outcomes.get(handle, [])
        state = states.pop(0) if states else "done"
        if state == "hangs":
            states.insert(0, state)
            return JobStatus(state=JobState.RUNNING)
        del self._jobs[handle]
        if state in ("done", "stopped") and job.kind is JobKind.RUN:
            run = RunSpec.model_validate(job.payload["run"])
            write_run(job.folder, run, state=state, reason="" if state == "done" else "validation")
        if job.kind is JobKind.COST and state == "done":
            (job.folder / "cost.json").write_text(json.dumps(asdict(make_cost())))
        reason = "killed" if state == "failed" else ""
        return JobStatus(
            state=JobState(state), exit_code=1 if state == "failed" else 0, reason=reason
        )

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)
        self._jobs.pop(handle, None)
