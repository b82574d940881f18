"""What may be asked of a running loop: knobs that controllers set, actions that observers return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Settings that controllers may move between steps."""

    kl_coef: float
    entropy_coef: float
    lr_scale: float = 1.0
    """Multiplies the schedule's learning rate."""
    samples_by_prompt: Mapping[str, int] = field(default_factory=dict[str, int])
    """Samples for named prompts; prompts not named take the spec's count."""


class ActionKind(StrEnum):
    """What the loop is asked to do after a step."""

    CONTINUE = "continue"
    STOP = "stop"
    SET_KNOBS = "set_knobs"
    RESTORE = "restore"
    DENSIFY = "densify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An observer's answer to one step; every action but CONTINUE is an event in the record."""

    kind: ActionKind = ActionKind.CONTINUE
    reason: str = ""
    knobs: Knobs | None = None
    """Set when kind is SET_KNOBS."""
    resumable: bool = False
    """For STOP: whether the same command may go on later; a stop for good is kept with the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEvent:
    """What a controller or a belt did; a row of the run's events."""

    kind: str
    """`entropy_cliff`, `kl_cap`, `gradient_alarm`, `reference_refreshed` and so on."""
    details: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    """Measured values and what was done (`response`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """A controller's answer to one step."""

    knobs: Knobs
    """Of the next step."""
    events: tuple[ControlEvent, ...] = ()
    stop: str | None = None
    """Why the run ends for good; None: it goes on."""


CONTINUE = Action()


def stop(reason: str, *, resumable: bool = False) -> Action:
    """Return the action that ends a run for `reason`, for good unless it is resumable."""
    return Action(kind=ActionKind.STOP, reason=reason, resumable=resumable)
