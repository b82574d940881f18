"""StudySpec: what a study varies and how it is decided."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from stepladder.spec.base import Spec
from stepladder.spec.run import RunSpec

FORMAT_VERSION = 1
"""Version of the study folder's format; a folder of another version is refused."""


class AxesSpec(Spec):
    """The three axes; the first value of each is the base point."""

    model: tuple[str, ...] = ("ladder-x1", "ladder-x2", "ladder-x4")
    """Model names or folders, smallest first."""
    samples_per_prompt: tuple[int, ...] = (8, 4, 16)
    """Rollouts per prompt; the first is the base point, at a fixed number of prompts."""
    steps: tuple[float, ...] = (0.25, 0.5, 1.0)
    """Points of the step axis as shares of budget.steps, read from the base runs' trajectories."""


class LongRunSpec(Spec):
    """The one longer run that extends the step axis."""

    ratio: float = Field(default=2.0, ge=1)
    """Its length as a multiple of budget.steps; 1 leaves it out."""
    num_seeds: int = Field(default=1, ge=1)
    """Seeds of it; fewer than the other points have is shown as such."""


class RulesSpec(Spec):
    """Co-adjustment of hyper-parameters with the scaled axis."""

    use: Literal["reports", "none"] = "reports"
    """`reports`: the practitioner table of the two reports."""
    control: bool = True
    """Also run the unadjusted arm on the model axis."""


class TargetSpec(Spec):
    """What the verdict is asked about."""

    axis: Literal["model", "samples_per_prompt", "steps"] = "model"
    """Axis that one wants to climb next."""
    ratio: float = Field(default=2.0, gt=1)
    """How far beyond the largest measured point; more than 4 is refused."""
    min_gain: float = Field(default=0.10, ge=0, le=1)
    """Least gain over the base policy, in pass@1, that makes the recipe worth scaling."""
    margin: float = Field(default=0.03, ge=0, le=1)
    """A larger size may end this much lower before it counts as a fall."""


class LaunchSpec(Spec):
    """Where the cells run."""

    type: Literal["local"] = "local"
    """Launcher."""
    slots: int | None = Field(default=None, ge=1)
    """Cells at once; None: as many as cores this process may use."""
    threads: int = Field(default=1, ge=1)
    """Threads of each cell."""


class StudySpec(Spec):
    """One study."""

    name: str = "study"
    """For people."""
    base: RunSpec = RunSpec()
    """The base point; its seed is replaced by the study's seeds."""
    axes: AxesSpec = AxesSpec()
    """What is varied, one axis at a time."""
    rules: RulesSpec = RulesSpec()
    """What moves along."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of every point."""
    long_run: LongRunSpec = LongRunSpec()
    """The longer run."""
    target: TargetSpec = TargetSpec()
    """The question."""
    launch: LaunchSpec = LaunchSpec()
    """Where."""

    @model_validator(mode="after")
    def _consistent(self) -> StudySpec:
        problems = study_problems(self)
        if problems:
            raise ValueError("\n".join(f"{path}\t{what}\t{fix}" for path, what, fix in problems))
        return self


def study_problems(study: StudySpec) -> list[tuple[str, str, str]]:
    """Return (path, what, fix) for every contradiction between study settings."""
    found: list[tuple[str, str, str]] = []
    groups: dict[str, tuple[Any, ...]] = {
        "axes.model": study.axes.model,
        "axes.samples_per_prompt": study.axes.samples_per_prompt,
        "axes.steps": study.axes.steps,
        "seeds": study.seeds,
    }
    for path, values in groups.items():
        if len(set(values)) < len(values):
            found.append((path, f"names a value twice: {list(values)}", "name each value once"))
        if not values:
            found.append((path, "is empty", "give at least one value"))
    if any(value < 2 for value in study.axes.samples_per_prompt):
        found.append(
            (
                "axes.samples_per_prompt",
                "holds a group size below 2: every group advantage would be 0",
                "use 2 or more",
            )
        )
    if any(not 0 < value <= 1 for value in study.axes.steps):
        found.append(("axes.steps", "holds a share outside (0, 1]", "write shares such as 0.5"))
    if study.target.ratio > 4:  # scaling.md 5.6
        found.append(
            (
                "target.ratio",
                f"is {study.target.ratio}, beyond 4x of what is measured",
                "use at most 4",
            )
        )
    return found
