"""Checks that any task must pass, for strangers' tests and for `stepladder tasks audit`.

def test_my_task():
    check_task(MyTask(level=2), num_prompts=200)
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepladder.core.errors import PlanError
from stepladder.core.prompt import Prompt, Split, prompt_id
from stepladder.core.rollout import Rollout
from stepladder.core.seams import Task
from stepladder.rewards.compose import CompositeReward
from stepladder.rewards.registry import build_reward
from stepladder.rewards.score import score_one
from stepladder.rewards.structure import parse
from stepladder.tasks.split import assert_disjoint
from stepladder.testing.rewards import ATTACKS, completion_of, known_right, sample_of

HASH_SEEDS = ("0", "4242")
_FINGERPRINT = """\
import json, pathlib, sys
from stepladder.tasks.registry import build_task
from stepladder.testing.tasks import fingerprint
mapping, folder = json.load(sys.stdin)
folder = pathlib.Path(folder) if folder else None
sys.stdout.write("fingerprint " + fingerprint(build_task(mapping, folder=folder)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that an audit looked at."""

    name: str
    passed: bool
    detail: str = ""
    """What was found; for a failure, the prompt and completion that show it."""
    mean: float | None = None
    """Mean of the term that was looked at."""
    num: int = 0
    """Completions scored."""
    num_skipped: int = 0
    """Left out because the answer happens to be right."""


def check_task(task: Task, num_prompts: int = 200, reward: CompositeReward | None = None) -> None:
    """Assert that a task can be trusted: see `audit_task`.

    Raises
        AssertionError: with the first check that failed.
    """
    for check in audit_task(task, num_prompts, reward):
        assert check.passed, f"task {task.name!r}, {check.name}: {check.detail}"


def audit_task(
    task: Task, num_prompts: int = 200, reward: CompositeReward | None = None
) -> list[Check]:
    """Return what is right and wrong with a task and its reward.

    The oracle earns full marks; no attack earns the outcome term; splits share no prompt; prompts
    are the same when asked for again. Only ids of the holdout split are read.
    """
    scorer = reward or build_reward({"type": "composite"}, task)
    prompts = sample_of(task, num_prompts)
    if not prompts:
        return [Check(name="prompts", passed=False, detail="there are none")]
    checks = [_sound_prompts(task, prompts), _disjoint(task)]
    checks.extend(_oracle_checks(task, scorer, prompts))
    others = _others(prompts)
    for name, make in ATTACKS.items():
        checks.append(_attack(task, scorer, list(zip(prompts, others, strict=True)), name, make))
    swapped = list(zip(prompts, others, strict=True))
    checks.append(
        _attack(task, scorer, swapped, "another prompt's oracle", lambda _, o: task.oracle(o))
    )
    return checks


def _others(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return a partner for each prompt, half the list away."""
    half = max(1, len(prompts) // 2)
    return [prompts[(place + half) % len(prompts)] for place in range(len(prompts))]


def _sound_prompts(task: Task, prompts: Sequence[Prompt]) -> Check:
    problem = ""
    for prompt in prompts:
        if prompt.id != prompt_id(prompt.messages):
            problem = f"the id of {prompt.text[:60]!r} is not its content hash"
        elif not prompt.gold:
            problem = f"{prompt.text[:60]!r} has no gold answer"
    for split in (Split.TRAIN, Split.EVAL):
        once, again = list(task.prompts(split)), list(task.prompts(split))
        if once != again:
            problem = f"the {split} split differs when asked for again"
        if any(prompt.split is not split for prompt in once):
            problem = f"a prompt of the {split} split says that it is of another"
        if len({prompt.id for prompt in once}) < len(once):
            problem = f"the {split} split holds a prompt twice"
    return Check(name="prompts", passed=not problem, detail=problem, num=len(prompts))


def _disjoint(task: Task) -> Check:
    try:
        assert_disjoint(task)
    except PlanError as error:
        return Check(name="splits share no prompt", passed=False, detail=str(error))
    sizes = ", ".join(f"{split} {len(task.prompts(split))}" for split in Split)
    return Check(name="splits share no prompt", passed=True, detail=sizes)


def _oracle_checks(task: Task, reward: CompositeReward, prompts: Sequence[Prompt]) -> list[Check]:
    scored = [score_one(reward, p, completion_of(p, task.oracle(p))) for p in prompts]
    poor = [r for r in scored if r.terms.get("outcome") != 1.0 or r.failure]
    outcome = sum(r.terms.get("outcome", 0.0) for r in scored) / len(scored)
    checks = [
        Check(
            name="oracle: outcome",
            passed=not poor,
            detail=_shown(poor[0]) if poor else "",
            mean=outcome,
            num=len(scored),
        )
    ]
    full = sum(max(0.0, reward.weights.get(name, 0.0)) for name in ("outcome", "format"))
    others = {n: w for n, w in reward.weights.items() if n not in ("outcome", "format") and w}
    if full <= 0 or others:
        detail = f"not judged: the best total is not known with weights {dict(reward.weights)}"
        return [*checks, Check(name="oracle: share of the full total", passed=True, detail=detail)]
    short = [r for r in scored if abs(r.reward - full) > 1e-9 * full]
    checks.append(
        Check(
            name="oracle: share of the full total",
            passed=not short,
            detail=_shown(short[0]) if short else f"the full total is {full:g}",
            mean=sum(r.reward for r in scored) / len(scored) / full,
            num=len(scored),
        )
    )
    return checks


def _attack(
    task: Task,
    reward: CompositeReward,
    pairs: Sequence[tuple[Prompt, Prompt]],
    name: str,
    make: Callable[[Prompt, Prompt], str],
) -> Check:
    scored: list[Rollout] = []
    num_skipped = 0
    for prompt, other in pairs:
        text = make(prompt, other)
        answer = parse(text).answer
        if answer is not None and known_right(prompt, answer, task.outcome):
            num_skipped += 1
        else:
            scored.append(score_one(reward, prompt, completion_of(prompt, text)))
    paid = [r for r in scored if r.terms.get("outcome") != 0.0 or r.failure]
    mean = sum(r.terms.get("outcome", 0.0) for r in scored) / len(scored) if scored else None
    detail = _shown(paid[0]) if paid else ""
    return Check(
        name=f"attack: {name}",
        passed=not paid,
        detail=detail or ("every answer happens to be right" if not scored else ""),
        mean=mean,
        num=len(scored),
        num_skipped=num_skipped,
    )


def _shown(rollout: Rollout) -> str:
    earned = rollout.failure or f"earned {dict(rollout.terms)}"
    problem = parse(rollout.completion.text).problem
    return (
        f"{rollout.completion.text[:80]!r} on prompt {rollout.prompt.text[:60]!r}"
        f" (gold {rollout.prompt.gold[:40]!r}) {earned}{problem and f'; {problem}'}"
    )


def fingerprint(task: Task) -> str:
    """Return a hash over every prompt, in order, its gold and its oracle; the holdout by id."""
    digest = hashlib.sha256()
    for split in Split:
        for prompt in task.prompts(split):
            seen = [prompt.id]
            if split is not Split.HOLDOUT:
                seen += [prompt.gold, task.oracle(prompt), repr(prompt.difficulty)]
            digest.update(json.dumps([split.value, *seen]).encode())
    return digest.hexdigest()[:16]


def check_hash_seeds(mapping: Mapping[str, Any], folder: Path | None = None) -> Check:
    """Return whether a task is the same in two new processes with different PYTHONHASHSEED."""
    found: list[str] = []
    for hash_seed in HASH_SEEDS:
        run = subprocess.run(
            [sys.executable, "-c", _FINGERPRINT],
            input=json.dumps([dict(mapping), str(folder) if folder else None]),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        if run.returncode:
            last = (run.stderr.strip().splitlines() or ["no output"])[-1]
            return Check(name="same under any PYTHONHASHSEED", passed=False, detail=last)
        found.append(run.stdout.rpartition("fingerprint ")[2])
    same = len(set(found)) == 1
    detail = "" if same else f"prompts, golds or oracles differ: {found}"
    return Check(name="same under any PYTHONHASHSEED", passed=same, detail=detail)
