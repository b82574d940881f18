"""Cost: which kinds of run to measure, how long a plan takes, and how a budget trims it.

Trims in a stated order: the long run, then the steps of all cells together, then the top of the
samples axis, then the unadjusted arm at the largest model, then seeds beyond three. Never below
three seeds a point. Every trim is a sentence that the verdict shows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from stepladder.core.errors import SpecError
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec
from stepladder.study.cell import StepCost
from stepladder.study.recipe import with_settings
from stepladder.study.shape import PlanPoint, Shape, cost_kind, full_shape, plan_points

MIN_SEEDS = 3
"""Below it an interval is of no use (scaling.md 4)."""
STEPS_FLOOR_SHARE = 0.4
"""Fewer steps than this share of the asked ones would answer another question."""
SHORT_LONG_RATIO = 1.5
"""What the long run is cut to before anything else is."""
SAFETY = 1.1
"""Estimates are raised by this: completions grow and machines get busy."""
REPORT_S = 8.0
"""Kept for the analysis and the report."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """The largest shape that fits, and what it lost."""

    shape: Shape
    trims: tuple[str, ...]
    estimated_s: float


def parse_budget(text: str) -> float:
    """Return seconds of `90s`, `6m`, `1h` or `1h30m`; a bare number is minutes.

    Raises
        SpecError: anything else, zero, or less.
    """
    rest, total = text.strip().lower().replace(" ", ""), 0.0
    while rest:
        number = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        unit = rest[len(number) : len(number) + 1]
        if not number or number.count(".") > 1 or number == "." or unit not in _UNITS:
            total = 0.0
            break
        total += float(number) * _UNITS[unit]
        rest = rest[len(number) + 1 :]
    if total <= 0:
        raise SpecError("SL0204", f"{text!r} is not a time", "--budget", "write 90s, 6m or 1h")
    return total


def cost_runs(spec: StudySpec) -> dict[str, RunSpec]:
    """Return kind -> run to measure: every model at base samples, and the largest samples point."""
    base_model, base_samples = spec.axes.model[0], spec.axes.samples_per_prompt[0]
    wanted = [(model, base_samples) for model in spec.axes.model]
    largest = max(spec.axes.samples_per_prompt)
    if largest != base_samples:
        wanted.append((base_model, largest))
    return {
        cost_kind(model, samples): with_settings(
            spec.base,
            {"model.path": model, "sampling.samples_per_prompt": samples, "name": "cost"},
            cost_kind(model, samples),
        )
        for model, samples in wanted
    }


def derive_costs(spec: StudySpec, measured: Mapping[str, StepCost]) -> dict[str, StepCost]:
    """Return the measured costs with every other samples point on the line through two of them.

    A step costs a fixed part and a part per rollout (performance.md 7), so two points are enough;
    with one, the step is taken as in proportion to its rollouts, which errs on the dear side.
    """
    base_model, base_samples = spec.axes.model[0], spec.axes.samples_per_prompt[0]
    costs = dict(measured)
    base = costs.get(cost_kind(base_model, base_samples))
    if base is None:
        return costs
    largest = max(spec.axes.samples_per_prompt)
    top = costs.get(cost_kind(base_model, largest))
    for samples in spec.axes.samples_per_prompt:
        kind = cost_kind(base_model, samples)
        if kind in costs:
            continue
        if top is not None and largest != base_samples:
            slope = (top.step_s - base.step_s) / (largest - base_samples)
            step_s = base.step_s + slope * (samples - base_samples)
        else:
            step_s = base.step_s * samples / base_samples
        costs[kind] = replace(base, step_s=max(step_s, 0.25 * base.step_s))
    return costs


def run_seconds(run: RunSpec, steps: int, cost: StepCost) -> float:
    """Return the estimated seconds of one run of `steps`, its start and evaluations included."""
    num_evals = 1 + math.ceil(steps / run.eval.every)
    return cost.start_s + SAFETY * (steps * cost.step_s + num_evals * cost.eval_s)


def point_seconds(
    spec: StudySpec, found: Iterable[PlanPoint], costs: Mapping[str, StepCost]
) -> dict[str, float]:
    """Return `kind@steps` -> estimated seconds of one cell, for the kinds whose cost is known."""
    return {
        point.duration_key: run_seconds(spec.base, point.steps, costs[point.kind])
        for point in found
        if point.kind in costs
    }


def list_schedule(seconds: Iterable[float], num_slots: int) -> float:
    """Return the wall time of jobs started longest first, each in the slot that is free first."""
    slots = [0.0] * max(1, num_slots)
    for duration in sorted(seconds, reverse=True):
        heapq.heappush(slots, heapq.heappop(slots) + duration)
    return max(slots)


def shape_seconds(
    spec: StudySpec, shape: Shape, costs: Mapping[str, StepCost], num_slots: int
) -> float:
    """Return the estimated wall seconds of all cells of a shape and the report."""
    found = plan_points(spec, shape)
    seconds = point_seconds(spec, found, costs)
    cells = [seconds[point.duration_key] for point in found for _ in point.seeds]
    return list_schedule(cells, num_slots) + REPORT_S


def steps_floor(run: RunSpec) -> int:
    """Return the fewest steps that a trim may leave, a multiple of eval.every where it can be."""
    least = max(
        math.ceil(run.budget.steps * STEPS_FLOOR_SHARE),
        run.optim.warmup_steps + 1,
        run.validation.steps + 1,
        run.eval.every * 2,
    )
    rounded = math.ceil(least / run.eval.every) * run.eval.every
    return min(rounded, run.budget.steps)


def steps_choices(run: RunSpec) -> list[int]:
    """Return the numbers of steps that a trim may choose, the asked one first."""
    asked, floor, every = run.budget.steps, steps_floor(run), run.eval.every
    below = [steps for steps in range(every, asked, every) if steps >= floor]
    return [asked, *reversed(below)]


def trim_to_budget(
    spec: StudySpec, costs: Mapping[str, StepCost], left_s: float, num_slots: int
) -> Trimmed:
    """Return the largest shape that fits into `left_s` seconds, in the stated order of trims."""
    asked = full_shape(spec)

    def seconds(shape: Shape) -> float:
        return shape_seconds(spec, shape, costs, num_slots)

    if seconds(asked) <= left_s:
        return Trimmed(shape=asked, trims=(), estimated_s=seconds(asked))
    last = asked
    for reduced in _reductions(spec, asked):
        for steps in steps_choices(spec.base):
            last = replace(reduced, steps=steps)
            if seconds(last) <= left_s:
                return Trimmed(
                    shape=last, trims=trim_sentences(asked, last), estimated_s=seconds(last)
                )
    over = (
        f"the budget is too small even so: about {seconds(last):.0f} s of runs are planned,"
        f" {max(left_s, 0):.0f} s were left"
    )
    return Trimmed(
        shape=last, trims=(*trim_sentences(asked, last), over), estimated_s=seconds(last)
    )


def _reductions(spec: StudySpec, asked: Shape) -> list[Shape]:
    """Return shapes from the least to the most reduced, steps apart."""
    steps: list[Callable[[Shape], Shape]] = [
        lambda s: replace(s, long_ratio=min(s.long_ratio, SHORT_LONG_RATIO)),
        lambda s: replace(s, samples=_without_top(s.samples)),
        lambda s: replace(s, unadjusted=_without(s.unadjusted, spec.axes.model[-1])),
        lambda s: replace(s, seeds=s.seeds[: max(MIN_SEEDS, 1)]),
    ]
    found: list[Shape] = []
    for step in steps:
        asked = step(asked)
        if not found or asked != found[-1]:
            found.append(asked)
    return found


def _without_top(samples: tuple[int, ...]) -> tuple[int, ...]:
    top = max(samples)
    return tuple(value for value in samples if value != top) if top != samples[0] else samples


def _without(models: tuple[str, ...], model: str) -> tuple[str, ...]:
    return tuple(name for name in models if name != model)


def trim_sentences(asked: Shape, kept: Shape) -> tuple[str, ...]:
    """Return one sentence for each thing that `kept` lacks."""
    found: list[str] = []
    if kept.long_ratio < asked.long_ratio:
        found.append(
            f"the long run has {kept.long_ratio:g}x the steps instead of {asked.long_ratio:g}x"
        )
    if kept.steps < asked.steps:
        found.append(f"every run has {kept.steps} steps instead of {asked.steps}")
    for value in sorted(set(asked.samples) - set(kept.samples)):
        found.append(f"samples_per_prompt={value} was left out")
    for model in sorted(set(asked.unadjusted) - set(kept.unadjusted)):
        found.append(f"the unadjusted control at {model} was left out")
    if len(kept.seeds) < len(asked.seeds):
        found.append(f"{len(kept.seeds)} seeds a point instead of {len(asked.seeds)}")
    return tuple(found)
