"""Simulated runs: healthy ones and known faults, so that detectors can be held to their budget.

Not a model of learning: curves of the shapes seen in real logs, with the sampling noise that a
batch of that size has. Seeded; numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepladder.core.record import EvalRow, RunRecord

Floats = NDArray[np.float64]
EVAL_EVERY, NUM_EVAL_PROMPTS = 20, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a simulated run looks like before anything goes wrong."""

    seed: int
    num_steps: int = 200
    num_prompts: int = 16
    """Prompts a step."""
    group: int = 8
    """Samples of each prompt."""
    entropy: float = 0.5
    """Nats per token at the start; real runs begin between 0.08 and 1.1."""


def healthy(simulation: Simulation) -> RunRecord:
    """Return a run that learns: reward up, entropy slowly down, KL slowly up, harmless spikes."""
    rng = np.random.default_rng(simulation.seed)
    skill = _learning_curve(rng, simulation.num_steps)
    return _record(rng, simulation, skill)


def collapse(simulation: Simulation, onset: int) -> RunRecord:
    """Return a run whose skill falls to nearly nothing within ten steps of `onset`."""
    rng = np.random.default_rng(simulation.seed)
    skill = _learning_curve(rng, simulation.num_steps)
    fall = 1.0 / (1.0 + np.exp((_steps(simulation) - onset - 5) / 1.5))
    return _record(rng, simulation, 0.02 + (skill - 0.02) * fall)


def kl_runaway(simulation: Simulation, onset: int) -> RunRecord:
    """Return a run whose KL grows by a tenth a step from `onset` on."""
    record = healthy(simulation)
    after = np.clip(_steps(simulation) - onset, 0, 60)
    return _with(record, kl_ref=record.metrics["kl_ref"] * 1.1**after)


def entropy_cliff(simulation: Simulation, onset: int) -> RunRecord:
    """Return a run that stops learning and whose entropy all but vanishes at `onset`."""
    rng = np.random.default_rng(simulation.seed)
    skill = _learning_curve(rng, simulation.num_steps)
    stuck = np.minimum(skill, min(0.7, skill[onset]))
    record = _record(rng, simulation, stuck)
    left = np.where(_steps(simulation) >= onset, 0.05, 1.0)
    return _with(record, entropy=record.metrics["entropy"] * left)


def gradient_explosion(simulation: Simulation, onset: int) -> RunRecord:
    """Return a run whose gradient norm grows by a quarter a step from `onset` on."""
    record = healthy(simulation)
    after = np.clip(_steps(simulation) - onset, 0, 25)
    return _with(record, grad_norm=record.metrics["grad_norm"] * 1.25**after)


def non_finite(simulation: Simulation, onset: int) -> RunRecord:
    """Return a run whose loss and gradient are not finite from `onset` on."""
    record = healthy(simulation)
    bad = _steps(simulation) >= onset
    norm = np.where(bad, np.nan, record.metrics["grad_norm"])
    steps = tuple(int(step) for step in record.steps[bad])
    return replace(_with(record, grad_norm=norm), non_finite={"grad_norm": steps, "loss": steps})


def truncation(simulation: Simulation, onset: int) -> RunRecord:
    """Return a run in which most completions are cut from `onset` on, and so earn nothing."""
    rng = np.random.default_rng(simulation.seed)
    cut = 0.9 / (1.0 + np.exp(-(_steps(simulation) - onset - 5) / 2.0))
    skill = _learning_curve(rng, simulation.num_steps) * (1.0 - cut)
    record = _record(rng, simulation, skill)
    num = simulation.num_prompts * simulation.group
    return _with(record, truncated_share=rng.binomial(num, np.clip(cut, 0.0, 1.0)) / num)


def first(record: RunRecord, num_rows: int) -> RunRecord:
    """Return the record as it stood after so many rows."""
    last = int(record.steps[num_rows - 1]) if num_rows else -1
    kept = {
        name: tuple(step for step in steps if step <= last)
        for name, steps in record.non_finite.items()
    }
    return replace(
        record,
        steps=record.steps[:num_rows],
        metrics={name: values[:num_rows] for name, values in record.metrics.items()},
        evals=[row for row in record.evals if row.step <= last],
        non_finite={name: steps for name, steps in kept.items() if steps},
    )


def _steps(simulation: Simulation) -> Floats:
    return np.arange(1, simulation.num_steps + 1, dtype=np.float64)


def _learning_curve(rng: np.random.Generator, num_steps: int) -> Floats:
    """Return the chance of a right answer [S], from a base's to a trained policy's."""
    start, end = rng.uniform(0.15, 0.45), rng.uniform(0.5, 0.97)
    middle, width = rng.uniform(0.2, 0.6) * num_steps, rng.uniform(0.08, 0.25) * num_steps
    rise = 1.0 / (1.0 + np.exp(-(np.arange(1, num_steps + 1) - middle) / width))
    return start + (end - start) * rise


def _record(rng: np.random.Generator, simulation: Simulation, skill: Floats) -> RunRecord:
    num = simulation.num_steps
    steps = _steps(simulation)
    right, zero = _groups(rng, simulation, skill)
    format_rate = np.clip(0.97 + 0.01 * rng.standard_normal(num), 0.0, 1.0)
    decline = 1.0 - rng.uniform(0.2, 0.7) * steps / num
    norm = rng.uniform(0.3, 1.0) * np.exp(0.25 * rng.standard_normal(num))
    norm[rng.random(num) < 0.01] *= 12.0  # harmless: real healthy logs have 0 to 4 of them
    kl = rng.uniform(0.01, 0.08) * (1.0 - np.exp(-steps / rng.uniform(20.0, 120.0)))
    size = simulation.num_prompts * simulation.group
    metrics: dict[str, Floats] = {
        "term_mean/outcome": right,
        "reward_mean": right + 0.1 * format_rate,
        "format_rate": format_rate,
        "zero_variance_share": zero,
        "entropy": simulation.entropy * decline * np.exp(0.05 * rng.standard_normal(num)),
        "kl_ref": kl * np.exp(0.3 * rng.standard_normal(num)),
        "grad_norm": norm,
        "loss": 0.01 * rng.standard_normal(num),
        "advantage_max": rng.uniform(1.5, 2.8, num),
        "truncated_share": rng.binomial(size, 0.01, num) / size,
        "length_mean": 12.0 + 0.5 * rng.standard_normal(num),
    }
    return RunRecord(
        run=f"simulated-{simulation.seed}",
        settings={"sampling.samples_per_prompt": simulation.group},
        steps=np.arange(1, num + 1),
        metrics=metrics,
        evals=_evaluations(rng, simulation, skill),
        status="done",
    )


def _groups(
    rng: np.random.Generator, simulation: Simulation, skill: Floats
) -> tuple[Floats, Floats]:
    """Return mean outcome [S] and share of groups without variance [S]; prompts differ."""
    shape = (simulation.num_steps, simulation.num_prompts)
    spread = 3.0  # prompts of middling spread: neither all alike nor all solved or hopeless
    mean = np.clip(skill, 0.01, 0.99)[:, None]
    chance = rng.beta(spread * mean, spread * (1.0 - mean), shape)
    right = rng.binomial(simulation.group, chance)
    alike = (right == 0) | (right == simulation.group)
    return right.mean(axis=1) / simulation.group, alike.mean(axis=1)


def _evaluations(
    rng: np.random.Generator, simulation: Simulation, skill: Floats
) -> tuple[EvalRow, ...]:
    rows: list[EvalRow] = []
    for step in range(0, simulation.num_steps + 1, EVAL_EVERY):
        chance = float(np.clip(skill[max(0, step - 1)], 0.0, 1.0))
        score = rng.binomial(NUM_EVAL_PROMPTS, chance) / NUM_EVAL_PROMPTS
        seen = step * simulation.num_prompts * simulation.group
        rows.append(EvalRow(step=step, values={"eval/pass@1": score}, num_samples_seen=seen))
    return tuple(rows)


def _with(record: RunRecord, **columns: Floats) -> RunRecord:
    metrics: Mapping[str, Any] = {**record.metrics, **columns}
    return replace(record, metrics=metrics)
