"""RunSpec: every setting of one training run. Defaults are the vetted setting."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import Field, model_validator

from stepladder.spec.algorithm import AlgorithmSpec, GrpoSpec
from stepladder.spec.base import Spec
from stepladder.spec.problems import run_problems


class LoraSpec(Spec):
    """Low-rank adapters, through peft."""

    rank: int = Field(default=16, ge=1)
    """Rank of each adapter."""
    alpha: float = Field(default=32.0, gt=0)
    """The adapter's output is scaled by alpha / rank."""
    targets: Literal["all_linear", "attention"] = "all_linear"
    """Linear layers that get an adapter; the output layer never does."""


class ModelSpec(Spec):
    """Which policy to train."""

    path: str = "ladder-x1"
    """`ladder-x1`, `ladder-x2`, `ladder-x4`, or the folder of a Hugging Face causal LM."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Type of weights and activations."""
    max_prompt_tokens: int = Field(default=1024, ge=1)
    """Longer prompts are refused when the run starts."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""
    lora: LoraSpec | None = None
    """Train low-rank adapters instead of every weight; null: every weight."""


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
    final_lr_share: float = Field(default=0.0, ge=0, le=1)
    """Where a decaying schedule ends, as a share of the peak."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm; what `clip` makes of it may differ."""
    clip: Literal["fixed", "size_scaled", "quantile"] = "fixed"
    """Threshold of the gradient norm: max_grad_norm itself; times the square root of the model's
    parameters over clip_parameters; or a quantile of the run's own last norms, at most
    max_grad_norm."""
    clip_parameters: int = Field(default=60_000, ge=1)
    """Parameters of the model for which max_grad_norm was chosen, for `size_scaled`."""
    clip_quantile: float = Field(default=0.9, gt=0, lt=1)
    """Quantile for `quantile`."""
    clip_window: int = Field(default=100, ge=10)
    """Updates that the quantile looks back on."""
    alarm_factor: float = Field(default=5.0, gt=1)
    """A gradient norm above this times its moving average is an alarm: an event in the record."""
    alarm_response: Literal["none", "skip", "lower_lr"] = "none"
    """What an alarm does beside being recorded: nothing (clipping acts already), leave the update
    out, or halve the learning rate."""
    max_skipped_steps: int = Field(default=5, ge=1)
    """Steps in a row without one applied update after which the run stops."""
    minibatch_size: int | None = Field(default=None, ge=1)
    """Rollouts of one optimiser update; None: the whole batch. Must divide the batch."""
    microbatch_size: int | None = Field(default=None, ge=1)
    """Rollouts of one forward pass, for memory only; None: the whole mini-batch."""


class KlSpec(Spec):
    """KL to the reference policy, its coefficient, its cap and the reference itself."""

    coef: float = Field(default=0.02, ge=0)
    """Weight of the KL term at the start; with 0, no controller, cap or budget, no reference is
    kept."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per-token estimator of the term."""
    placement: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken off each token's reward before advantages."""
    controller: Literal["fixed", "adaptive", "schedule"] = "fixed"
    """Leave the coefficient; move it so that the KL nears `target`; or move it geometrically from
    coef to final_coef over the run (loose early, tight late)."""
    target: float = Field(default=0.05, gt=0)
    """KL in nats per token that the adaptive controller aims at."""
    horizon: int = Field(default=2000, ge=1)
    """Rollouts over which the adaptive controller can change the coefficient by a factor e^0.2."""
    coef_min: float = Field(default=1e-4, gt=0)
    """Least coefficient of the adaptive controller."""
    coef_max: float = Field(default=1.0, gt=0)
    """Largest coefficient of the adaptive controller and of a cap that raises it."""
    final_coef: float = Field(default=0.1, gt=0)
    """Coefficient at the last step, for `schedule`."""
    cap: float | None = Field(default=1.0, gt=0)
    """KL in nats per token above which no update is applied; null: no cap."""
    cap_action: Literal["restore", "skip", "raise", "stop"] = "restore"
    """At the cap: take up the last healthy weights and halve the learning rate; leave the update
    out; apply it with the coefficient doubled; or end the run."""
    budget: float | None = Field(default=None, gt=0)
    """KL in nats per token to the base policy at which the run ends, whatever the reference does
    meanwhile; null: none."""
    reference: Literal["frozen", "refresh", "ema"] = "frozen"
    """The base policy for ever; the policy as it was at the last multiple of refresh_every; or a
    moving average of the policy."""
    refresh_every: int = Field(default=50, ge=1)
    """Steps between refreshes."""
    ema_decay: float = Field(default=0.99, gt=0, lt=1)
    """Share of the reference that a moving average keeps at each step."""

    @property
    def measured(self) -> bool:
        """Whether anything asks for the KL to the reference, so that one is kept."""
        adaptive = self.controller != "fixed"
        return self.coef > 0 or adaptive or self.cap is not None or self.budget is not None


class EntropySpec(Spec):
    """Entropy bonus, its controller and the watch for a cliff."""

    coef: float = Field(default=0.01, ge=0)
    """Weight of the mean token entropy that is added to the objective."""
    controller: Literal["fixed", "adaptive"] = "fixed"
    """Leave the coefficient, or move it to keep entropy inside the target band."""
    target_low: float = Field(default=0.2, gt=0)
    """Lower end of the band, as a share of the entropy at the run's first step."""
    target_high: float = Field(default=0.8, gt=0)
    """Upper end of the band, as a share of the entropy at the run's first step."""
    rate: float = Field(default=0.1, gt=0, lt=1)
    """The adaptive controller changes the coefficient by at most this share a step."""
    coef_min: float = Field(default=1e-4, gt=0)
    """Least coefficient of the adaptive controller."""
    coef_max: float = Field(default=0.1, gt=0)
    """Largest coefficient of the adaptive controller and of the cliff's response."""
    cliff_share: float = Field(default=0.5, gt=0, lt=1)
    """Entropy below this share of its median over the last cliff_window steps is a cliff: an event
    in the record."""
    cliff_window: int = Field(default=5, ge=2)
    """Steps that a cliff is measured against."""
    cliff_response: Literal["raise", "lower_lr", "none"] = "raise"
    """At a cliff: double the entropy coefficient, halve the learning rate, or only record it."""


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
    """How many of the newest are kept."""
    keep_best: int = Field(default=0, ge=0)
    """How many more are kept for their held-out score."""


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

    @model_validator(mode="before")
    @classmethod
    def _default_algorithm(cls, values: Any) -> Any:
        """A section without a type is GRPO's."""
        if not isinstance(values, dict):
            return values
        tree = cast("dict[str, Any]", values)
        section = tree.get("algorithm")
        if not isinstance(section, dict) or "type" in section:
            return tree
        return {**tree, "algorithm": {"type": GrpoSpec().type, **cast("dict[str, Any]", section)}}

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        problems = run_problems(self)
        if problems:
            raise ValueError("\n".join(f"{path}\t{what}\t{fix}" for path, what, fix in problems))
        return self
