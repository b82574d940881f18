"""The seams that carry tensors or serve the loop: Policy, Algorithm, Recorder, Observer.

The eight tensor-free seams stand in `core/seams.py`. Axes: N rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from stepladder.core.control import Action, Knobs
from stepladder.core.metrics import StepMetrics
from stepladder.core.record import EvalRow
from stepladder.core.rollout import RolloutGroup
from stepladder.engine.batch import Advantages, PackedRollouts, RolloutBatch, TokenLogprobs
from stepladder.engine.loss import LossTerms

Observer = Callable[[StepMetrics], Action]
"""Called once a step with what was measured; answers what the loop does next."""


@runtime_checkable
class Policy(Protocol):
    """A trainable causal LM over packed rollouts."""

    def logprobs(self, packed: PackedRollouts) -> TokenLogprobs:
        """Return log-probs and exact entropy of every action token at the sampling temperature."""
        ...

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return the weights that train, by a stable name."""
        ...

    def save_folder(self, folder: Path) -> None:
        """Write config and weights as a Hugging Face folder."""
        ...


@runtime_checkable
class Algorithm(Protocol):
    """Credit assignment and objective."""

    def advantages(self, packed: PackedRollouts) -> Advantages:
        """Return one advantage an action token."""
        ...

    def loss_weights(self, packed: PackedRollouts) -> Tensor:
        """Return [N, T] what each action token's loss counts in one update of these rollouts."""
        ...

    def loss(self, batch: RolloutBatch, new: TokenLogprobs, knobs: Knobs) -> LossTerms:
        """Return this part's share of the loss: token losses times `batch.loss_weight_NT`."""
        ...

    def state(self) -> Mapping[str, float]:
        """Return JSON values that `load` needs to go on exactly (running statistics)."""
        ...

    def load(self, state: Mapping[str, float]) -> None:
        """Take up a saved state."""
        ...


@runtime_checkable
class Recorder(Protocol):
    """Where a run's rows go; everything is on disk when a call returns."""

    def step(self, metrics: StepMetrics) -> None:
        """Append one step."""
        ...

    def evaluation(self, row: EvalRow, system: Mapping[str, float]) -> None:
        """Append one evaluation."""
        ...

    def rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Dump rollouts of one step."""
        ...

    def event(self, kind: str, step: int, **details: object) -> None:
        """Append one event."""
        ...

    def truncate_after(self, step: int) -> None:
        """Drop rows of later steps; -1 drops every row. Called when a run resumes."""
        ...


class ValueModel(Protocol):
    """A critic: the value of the state in which each action token was chosen."""

    shared: bool
    """Whether the value head sits on the policy, whose `logprobs` then returns values too."""

    def values(self, packed: PackedRollouts) -> Tensor:
        """Return value_NT, 0 where no action is; with a gradient unless the caller forbids it."""
        ...

    def last_values(self, packed: PackedRollouts) -> Tensor:
        """Return [N] the value of what follows the last token; without a gradient."""
        ...

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return the critic's own weights; empty when shared."""
        ...


class FrozenPolicy(Protocol):
    """A policy that answers and never trains."""

    def logp(self, packed: PackedRollouts) -> Tensor:
        """Return logp_NT without a gradient."""
        ...
