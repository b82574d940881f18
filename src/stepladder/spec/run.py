"""RunSpec: every setting of one training run. Defaults are the vetted setting."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from stepladder.spec.algorithm import GROUP_ADVANTAGE_NAMES, AlgorithmSpec, GrpoSpec
from stepladder.spec.base import Spec


class ModelSpec(Spec):
    """Which policy to train."""

    path: str = "ladder-x1"
    """`ladder-x1`, `ladder-x2`, `ladder-x4`, or the folder of a Hugging Face causal LM."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Type of weights and activations."""
    max_prompt_tokens: int = Field(default=1024, ge=1)
    """Longer prompts are refused when the run starts."""


class SamplingSpec(Spec):
    """How rollouts are drawn."""

    prompts_per_step: int = Field(default=16, ge=1)
    """Different prompts in one step."""
    samples_per_prompt: int = Field(default=8, ge=1)
    """Rollouts of each prompt (G)."""
    max_new_tokens: int = Field(default=32, ge=1)
    """Token limit of a completion."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature; log-probs and entropy are taken at it."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; anything below 1 is refused: the log-probs would not match the sampler's."""


class OptimSpec(Spec):
    """AdamW and its schedule."""

    lr: float = Field(default=2.5e-4, gt=0, lt=1)
    """Peak learning rate."""
    warmup_steps: int = Field(default=10, ge=0)
    """Steps over which lr rises linearly from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up, until the last step."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    minibatch_size: int | None = Field(default=None, ge=1)
    """Rollouts of one optimiser update; None: the whole batch. Must divide the batch."""
    microbatch_size: int | None = Field(default=None, ge=1)
    """Rollouts of one forward pass, for memory only; None: the whole mini-batch."""


class KlSpec(Spec):
    """KL to the frozen reference policy."""

    coef: float = Field(default=0.02, ge=0)
    """Weight of the KL term; 0 leaves the reference out."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per-token estimator of the term."""
    placement: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken off each token's reward before advantages."""


class EntropySpec(Spec):
    """Entropy bonus."""

    coef: float = Field(default=0.01, ge=0)
    """Weight of the mean token entropy that is added to the objective."""


class EvalSpec(Spec):
    """Held-out evaluation during a run."""

    split: Literal["eval", "holdout", "train"] = "eval"
    """Split that is sampled; `train` is refused, it would flatter every run."""
    every: int = Field(default=20, ge=1)
    """Steps between evaluations; step 0 and the last step are always evaluated."""
    num_prompts: int = Field(default=128, ge=1)
    """Prompts of the split that are used, always the same ones."""
    samples_per_prompt: int = Field(default=1, ge=1)
    """Samples of each eval prompt."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of evaluations; 0 is greedy."""
    window: int = Field(default=2, ge=1)
    """The final score is the mean of this many last evaluations."""


class ValidationSpec(Spec):
    """The short validation that a run must pass before its long part."""

    steps: int = Field(default=20, ge=0)
    """Step at which the run is judged; 0 turns validation off."""
    max_kl: float = Field(default=1.0, gt=0)
    """A KL to the reference above this (nats per token) fails."""
    min_score_share: float = Field(default=0.5, ge=0, le=1)
    """A held-out score below this share of the base policy's fails."""


class BudgetSpec(Spec):
    """How long to train."""

    steps: int = Field(default=100, ge=1)
    """Training steps."""


class CheckpointSpec(Spec):
    """Full-state checkpoints."""

    every: int = Field(default=50, ge=1)
    """Steps between checkpoints; the last step is always saved."""
    keep: int = Field(default=1, ge=1)
    """How many are kept."""


class RecordSpec(Spec):
    """What is written beside the metrics."""

    rollouts_every: int = Field(default=20, ge=0)
    """Steps between rollout dumps; 0 writes none."""
    rollouts_per_dump: int = Field(default=32, ge=1)
    """Rollouts of one dump."""
    store_text: bool = True
    """Whether dumps hold the text of prompts and completions."""


class RunSpec(Spec):
    """One training run."""

    name: str = "run"
    """For people; not part of the run's identity."""
    seed: int = Field(default=1, ge=0)
    """Seed of sampling, prompt order and evaluation."""
    model: ModelSpec = ModelSpec()
    """The policy."""
    task: dict[str, Any] = Field(default_factory=lambda: {"type": "arithmetic"})
    """Task plug-in: `{type = ...}` or `{use = "module:attribute"}`, with its own settings."""
    reward: dict[str, Any] = Field(default_factory=lambda: {"type": "composite"})
    """Reward plug-in; the default weighs outcome, format and length terms."""
    sampling: SamplingSpec = SamplingSpec()
    """Rollouts."""
    algorithm: AlgorithmSpec = GrpoSpec()
    """Advantages and objective."""
    optim: OptimSpec = OptimSpec()
    """Optimiser."""
    kl: KlSpec = KlSpec()
    """KL control."""
    entropy: EntropySpec = EntropySpec()
    """Entropy control."""
    eval: EvalSpec = EvalSpec()
    """Evaluation."""
    validation: ValidationSpec = ValidationSpec()
    """Validation gate."""
    budget: BudgetSpec = BudgetSpec()
    """Length."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """Checkpoints."""
    record: RecordSpec = RecordSpec()
    """Records."""

    @property
    def batch_size(self) -> int:
        """Rollouts of one step."""
        return self.sampling.prompts_per_step * self.sampling.samples_per_prompt

    @property
    def run_id(self) -> str:
        """Content hash of everything but the name: the identity of a run."""
        return self.content_id(frozenset({"name"}))

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        problems = run_problems(self)
        if problems:
            raise ValueError("\n".join(f"{path}\t{what}\t{fix}" for path, what, fix in problems))
        return self


def run_problems(run: RunSpec) -> list[tuple[str, str, str]]:
    """Return (path, what, fix) for every contradiction between settings."""
    found: list[tuple[str, str, str]] = []
    group = run.sampling.samples_per_prompt
    if run.algorithm.type in GROUP_ADVANTAGE_NAMES and group < 2:
        found.append(
            (
                "sampling.samples_per_prompt",
                f"is {group}, but {run.algorithm.type} compares the samples of one prompt:"
                " with a group of 1 every advantage is 0",
                "set it to at least 2; 8 is the default",
            )
        )
    if run.sampling.top_p < 1:
        found.append(
            (
                "sampling.top_p",
                f"is {run.sampling.top_p}: training log-probs would not match the sampler's",
                "leave it at 1.0 and lower the temperature instead",
            )
        )
    if run.optim.warmup_steps >= run.budget.steps:
        found.append(
            (
                "optim.warmup_steps",
                f"is {run.optim.warmup_steps}, but the run has {run.budget.steps} steps:"
                " the learning rate would never reach its peak",
                f"set it below {run.budget.steps}, or raise budget.steps",
            )
        )
    found.extend(_batch_problems(run))
    if run.eval.split == "train":
        found.append(
            (
                "eval.split",
                "is 'train': the score would be taken on prompts that the policy trains on",
                "use 'eval'",
            )
        )
    return found


def _batch_problems(run: RunSpec) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    batch, group = run.batch_size, run.sampling.samples_per_prompt
    mini = run.optim.minibatch_size or batch
    if batch % mini:
        found.append(
            (
                "optim.minibatch_size",
                f"is {mini}, which does not divide the batch of {batch} rollouts"
                f" (prompts_per_step {run.sampling.prompts_per_step} x samples_per_prompt {group})",
                f"use a divisor of {batch}, such as {_near_divisor(batch, mini)}",
            )
        )
    micro = run.optim.microbatch_size or mini
    if not batch % mini and mini % micro:
        found.append(
            (
                "optim.microbatch_size",
                f"is {micro}, which does not divide the mini-batch of {mini} rollouts",
                f"use a divisor of {mini}, such as {_near_divisor(mini, micro)}",
            )
        )
    return found


def _near_divisor(total: int, wanted: int) -> int:
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))
