"""Controllers: they read a step's metrics and move the knobs of the next one.

A metric that is missing or not finite moves nothing. Their state lives in the checkpoint.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepladder.core.control import Adjustment, ControlEvent, Knobs
from stepladder.core.metrics import StepMetrics
from stepladder.core.rollout import RolloutGroup
from stepladder.core.seams import Controller
from stepladder.spec.run import EntropySpec, KlSpec, RunSpec

LARGEST_ERROR = 0.2
"""The adaptive KL rule's bound on the relative error of one step (verl, OpenRLHF: the same)."""


class _Stateless:
    """A controller whose answer depends on the step alone."""

    def state(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up nothing."""


class AdaptiveKl(_Stateless):
    """Moves the coefficient so that the KL nears its target (Ziegler et al. 2019, with bounds).

    coef <- coef * (1 + clip(kl / target - 1, -0.2, 0.2) * n / horizon), n the step's rollouts.
    The coefficient itself is a knob and is saved with the loop.
    """

    name = "adaptive_kl"

    def __init__(self, spec: KlSpec) -> None:
        self.spec = spec

    def update(
        self, knobs: Knobs, metrics: StepMetrics, groups: Sequence[RolloutGroup]
    ) -> Adjustment:
        """Return the next coefficient."""
        kl, spec = metrics.values.get("kl_ref"), self.spec
        if kl is None:
            return Adjustment(knobs=knobs)
        error = min(max(kl / spec.target - 1.0, -LARGEST_ERROR), LARGEST_ERROR)
        num_rollouts = sum(len(group.rollouts) for group in groups)
        share = min(1.0, num_rollouts / spec.horizon)
        coef = max(knobs.kl_coef, spec.coef_min) * (1.0 + error * share)
        coef = min(max(coef, spec.coef_min), spec.coef_max)
        return Adjustment(knobs=replace(knobs, kl_coef=coef))


class ScheduledKl(_Stateless):
    """Moves the coefficient geometrically from `coef` to `final_coef` over the run."""

    name = "scheduled_kl"

    def __init__(self, spec: KlSpec, steps: int) -> None:
        self.start = max(spec.coef, spec.coef_min)
        self.end = spec.final_coef
        self.steps = steps

    def update(
        self,
        knobs: Knobs,
        metrics: StepMetrics,
        groups: Sequence[RolloutGroup],  # noqa: ARG002  (the seam)
    ) -> Adjustment:
        """Return the coefficient of the step that follows."""
        progress = min(1.0, metrics.step / max(1, self.steps - 1))
        coef = self.start * (self.end / self.start) ** progress
        return Adjustment(knobs=replace(knobs, kl_coef=coef))


class KlBudget(_Stateless):
    """Ends the run when the policy has moved as far from the base policy as it may."""

    name = "kl_budget"

    def __init__(self, budget: float) -> None:
        self.budget = budget

    def update(
        self,
        knobs: Knobs,
        metrics: StepMetrics,
        groups: Sequence[RolloutGroup],  # noqa: ARG002  (the seam)
    ) -> Adjustment:
        """Return a stop when the budget is spent."""
        values = metrics.values
        kl = values.get("kl_base", values.get("kl_ref"))
        if kl is None or kl <= self.budget:
            return Adjustment(knobs=knobs)
        event = ControlEvent(kind="kl_budget_spent", details={"kl": kl, "budget": self.budget})
        reason = f"KL to the base policy {kl:.3g} is above the run's budget of {self.budget:g}"
        return Adjustment(knobs=knobs, events=(event,), stop=reason)


class EntropyBand:
    """Keeps entropy between two shares of its first value by moving the coefficient.

    Outside the band the coefficient moves by up to `rate` a step, in proportion to the distance;
    inside, it goes back towards the setting at half that speed.
    """

    name = "entropy_band"

    def __init__(self, spec: EntropySpec) -> None:
        self.spec = spec
        self.first: float | None = None

    def update(
        self,
        knobs: Knobs,
        metrics: StepMetrics,
        groups: Sequence[RolloutGroup],  # noqa: ARG002  (the seam)
    ) -> Adjustment:
        """Return the next coefficient."""
        entropy, spec = metrics.values.get("entropy"), self.spec
        if entropy is None:
            return Adjustment(knobs=knobs)
        if self.first is None:
            self.first = entropy
        low, high = spec.target_low * self.first, spec.target_high * self.first
        coef = max(knobs.entropy_coef, spec.coef_min)
        if entropy < low:
            coef *= 1.0 + spec.rate * min(1.0, 2.0 * (low - entropy) / max(low, 1e-12))
        elif entropy > high:
            coef /= 1.0 + spec.rate * min(1.0, 2.0 * (entropy - high) / max(high, 1e-12))
        elif coef > spec.coef:
            coef = max(spec.coef, coef / (1.0 + 0.5 * spec.rate))
        else:
            coef = min(spec.coef, coef * (1.0 + 0.5 * spec.rate))
        coef = min(max(coef, spec.coef_min), spec.coef_max)
        return Adjustment(knobs=replace(knobs, entropy_coef=coef))

    def state(self) -> Mapping[str, Any]:
        """Return the first entropy."""
        return {"first": self.first}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        self.first = state["first"]


class EntropyCliff:
    """Answers an entropy that falls below a share of its own recent median.

    After an answer the window fills anew: one fall is one event.
    """

    name = "entropy_cliff"

    def __init__(self, spec: EntropySpec) -> None:
        self.spec = spec
        self.window: list[float] = []

    def update(
        self,
        knobs: Knobs,
        metrics: StepMetrics,
        groups: Sequence[RolloutGroup],  # noqa: ARG002  (the seam)
    ) -> Adjustment:
        """Return the knobs, changed at a cliff."""
        entropy, spec = metrics.values.get("entropy"), self.spec
        if entropy is None:
            return Adjustment(knobs=knobs)
        earlier, self.window = self.window, [*self.window, entropy][-spec.cliff_window :]
        if len(earlier) < spec.cliff_window:
            return Adjustment(knobs=knobs)
        median = statistics.median(earlier)
        if entropy >= spec.cliff_share * median:
            return Adjustment(knobs=knobs)
        self.window = []
        if spec.cliff_response == "raise":
            coef = min(2.0 * max(knobs.entropy_coef, spec.coef_min), spec.coef_max)
            # A setting above the bound was chosen; the response never lowers it.
            knobs = replace(knobs, entropy_coef=max(coef, knobs.entropy_coef))
        elif spec.cliff_response == "lower_lr":
            knobs = replace(knobs, lr_scale=0.5 * knobs.lr_scale)
        details = {"entropy": entropy, "median": median, "response": spec.cliff_response}
        event = ControlEvent(kind="entropy_cliff", details=details)
        return Adjustment(knobs=knobs, events=(event,))

    def state(self) -> Mapping[str, Any]:
        """Return the window."""
        return {"window": list(self.window)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        self.window = list(state["window"])


def build_controllers(run: RunSpec) -> tuple[Controller, ...]:
    """Return the run's controllers, in the order in which they act; the cliff watch is always on."""
    found: list[Controller] = []
    if run.kl.controller == "adaptive":
        found.append(AdaptiveKl(run.kl))
    elif run.kl.controller == "schedule":
        found.append(ScheduledKl(run.kl, run.budget.steps))
    if run.kl.budget is not None:
        found.append(KlBudget(run.kl.budget))
    if run.entropy.controller == "adaptive":
        found.append(EntropyBand(run.entropy))
    return (*found, EntropyCliff(run.entropy))
