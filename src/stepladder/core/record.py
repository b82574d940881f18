"""RunRecord: a read-only view of any run, ours or imported, for monitors and studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """One evaluation: score with the items behind it."""

    step: int
    values: Mapping[str, float]
    """By canonical name, such as `eval/pass@1`."""
    items: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """prompt id -> (number right, number sampled); empty when not kept."""
    num_samples_seen: int = 0
    """Training rollouts drawn before this evaluation."""
    num_tokens_seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as arrays by canonical metric name."""

    run: str
    settings: Mapping[str, Any]
    """Flat dotted path -> value; may be partial for imported runs."""
    steps: np.ndarray[Any, Any]
    """[S] int, the step of each row."""
    metrics: Mapping[str, np.ndarray[Any, Any]]
    """name -> [S] float; NaN where a row has no value."""
    evals: Sequence[EvalRow]
    status: str
    """done, stopped, failed, running or unknown."""
    reason: str = ""
    samples: Callable[[], Iterator[Mapping[str, Any]]] | None = None
    """Opens the stored rollouts; None when none were kept."""
    lineage: tuple[str, ...] = ()
    """Ids of the sessions that resumed this run, oldest first."""
    not_understood: tuple[str, ...] = ()
    """Names that an importer could not map."""
    non_finite: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """name -> steps at which the value was NaN or infinite; such values are not in `metrics`."""
