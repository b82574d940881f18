"""The eight tensor-free seams. A stranger adds a part by meeting one of these protocols.

The two seams that carry tensors (Policy, Algorithm) stand in `stepladder.engine.seams`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from stepladder.core.control import Adjustment, Knobs
from stepladder.core.finding import Finding
from stepladder.core.job import Job, JobStatus
from stepladder.core.metrics import StepMetrics
from stepladder.core.prompt import Prompt, Split
from stepladder.core.record import RunRecord
from stepladder.core.rollout import Completion, RolloutGroup, SamplingParams


@runtime_checkable
class Task(Protocol):
    """A source of prompts with gold answers."""

    name: str
    outcome: str
    """Registered name of the reward that decides whether an answer is right."""

    def prompts(self, split: Split) -> Sequence[Prompt]:
        """Return every prompt of a split, in a fixed order; splits share no prompt id."""
        ...

    def oracle(self, prompt: Prompt) -> str:
        """Return a completion that earns full marks."""
        ...


@runtime_checkable
class Reward(Protocol):
    """A scorer of completions."""

    def score(self, prompt: Prompt, completion: Completion) -> Mapping[str, float]:
        """Return raw terms by name; may raise, which is recorded on the rollout."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Draws completions from the current policy."""

    def sample(
        self, prompts: Sequence[Prompt], counts: Sequence[int], params: SamplingParams
    ) -> list[list[Completion]]:
        """Return `counts[i]` completions for `prompts[i]`, in order."""
        ...

    def refresh(self, version: int) -> None:
        """Take up the weights of policy `version`."""
        ...


@runtime_checkable
class Controller(Protocol):
    """Moves knobs between steps; its state lives in the checkpoint."""

    name: str
    """Key of its state in the checkpoint."""

    def update(
        self, knobs: Knobs, metrics: StepMetrics, groups: Sequence[RolloutGroup]
    ) -> Adjustment:
        """Return the knobs of the next step, what was done, and whether the run ends."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Return JSON values that `load` needs to go on exactly."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        ...


@runtime_checkable
class Monitor(Protocol):
    """A detector over a run's record, live or afterwards."""

    needs: tuple[str, ...]
    """Canonical metrics without which it cannot say."""

    def check(self, record: RunRecord) -> Finding:
        """Return fired, clear or cannot say."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Starts jobs somewhere."""

    def submit(self, job: Job) -> str:
        """Start a job and return its handle."""
        ...

    def poll(self, handle: str) -> JobStatus:
        """Return where the job stands."""
        ...

    def cancel(self, handle: str) -> None:
        """End the job and all that it started."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A second place that metrics are sent to, after the local write."""

    def write(self, metrics: StepMetrics) -> None:
        """Send one step."""
        ...

    def close(self) -> None:
        """Flush and let go."""
        ...


@runtime_checkable
class Importer(Protocol):
    """Reads another tool's logs."""

    def sniff(self, path: Path) -> float:
        """Return how sure it is, 0 to 1, that it can read `path`."""
        ...

    def read(self, path: Path) -> RunRecord:
        """Return the record."""
        ...
