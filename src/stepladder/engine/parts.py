"""What the loop works with; nothing here changes during a run but weights, moments and states."""

from __future__ import annotations

from dataclasses import dataclass

from stepladder.core.seams import Controller, Reward, Sampler
from stepladder.engine.checkpoint import CheckpointStore
from stepladder.engine.evaluate import Evaluator
from stepladder.engine.guard import KlGuard
from stepladder.engine.optim import Optimizer
from stepladder.engine.policy import CausalPolicy
from stepladder.engine.prompts import PromptOrder
from stepladder.engine.reference import StoredReference
from stepladder.engine.reward_model import RewardModel
from stepladder.engine.seams import Algorithm, Observer, Recorder, ValueModel
from stepladder.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What turns a batch into changed weights."""

    run: RunSpec
    policy: CausalPolicy
    algorithm: Algorithm
    optimizer: Optimizer
    reference: StoredReference | None = None
    base: StoredReference | None = None
    """The base policy apart from a moving reference, for a KL budget."""
    critic: ValueModel | None = None
    critic_optimizer: Optimizer | None = None
    """None without a critic, and when the value head sits on the policy."""
    guard: KlGuard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A run's parts."""

    run: RunSpec
    order: PromptOrder
    sampler: Sampler
    reward: Reward
    learner: Learner
    controllers: tuple[Controller, ...]
    evaluator: Evaluator
    checkpoints: CheckpointStore
    recorder: Recorder
    observer: Observer
    reward_model: RewardModel | None = None
