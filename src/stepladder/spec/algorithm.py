"""Algorithm settings: a union tagged by `type`. Behaviour stands in `engine/algo`.

Named algorithms are vetted settings of a few parts (baseline, scale, ratio, clip, aggregation);
each part can be set alone, and `spec/conventions.py` says which setting gives which peer's figures.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stepladder.spec.base import Spec


class ObjectiveSpec(Spec):
    """What every algorithm's objective has."""

    objective: Literal["clip", "cispo"] = "clip"
    """`clip`: the pessimistic clipped ratio of PPO; `cispo`: the clipped ratio as a weight without
    a gradient, so that every token keeps one."""
    ratio: Literal["token", "sequence"] = "token"
    """Probability ratio of each token, or the geometric mean over a completion (GSPO)."""
    clip_low: float = Field(default=0.2, gt=0)
    """Lower clip: the ratio is not rewarded below 1 - clip_low; 1 or more is no lower clip."""
    clip_high: float = Field(default=0.2, gt=0)
    """Upper clip, a distance from 1 in every objective: the ratio is not rewarded above
    1 + clip_high."""
    dual_clip: float | None = Field(default=None, gt=1)
    """With a negative advantage the loss of a token grows no further than this ratio; null: off."""
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] = "token_mean"
    """How token losses become one: the mean over all tokens of the update, the mean over
    completions of their token means, or the sum over a constant (completions x max_new_tokens)."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Passes over one batch of rollouts."""
    importance_cap: float | None = Field(default=None, ge=1)
    """Truncated importance correction: a token's loss is weighted by the trainer's over the
    sampler's probability, at most this; null: off."""
    importance_level: Literal["token", "sequence"] = "token"
    """Correct each token, or each completion by its geometric mean."""
    overlong: Literal["keep", "mask", "penalty"] = "keep"
    """Completions cut at max_new_tokens: train on them, leave them out of the loss, or take a
    linear penalty off the reward of completions that come near the limit (DAPO)."""
    overlong_buffer: int = Field(default=8, ge=1)
    """Tokens before max_new_tokens over which the penalty grows."""
    overlong_penalty: float = Field(default=1.0, gt=0)
    """Penalty of a completion that was cut."""


class GroupSpec(ObjectiveSpec):
    """What algorithms share whose baseline is the group of one prompt's samples."""

    baseline: Literal["mean", "leave_one_out"] = "mean"
    """The group's mean, or the mean of the other samples."""
    scale: Literal["std", "leave_one_out_std", "none"] = "std"
    """Divide the centred reward by the group's standard deviation, by that of the other samples,
    or leave it centred."""
    ddof: Literal[0, 1] = 1
    """Degrees of freedom taken off in the standard deviation."""
    std_floor: float = Field(default=1e-3, ge=0)
    """Least standard deviation divided by; keeps float noise from becoming a full-size update."""
    std_epsilon: float = Field(default=0.0, ge=0)
    """Added to the standard deviation, as peers do; 0: only the floor acts."""


class GrpoSpec(GroupSpec):
    """Group-relative policy optimisation with the clipped objective."""

    type: Literal["grpo"] = "grpo"
    """Which algorithm computes advantages and the objective."""


class DrGrpoSpec(GroupSpec):
    """GRPO done right: no division by the standard deviation or by the completion's length."""

    type: Literal["dr_grpo"] = "dr_grpo"
    """Which algorithm computes advantages and the objective."""
    scale: Literal["std", "leave_one_out_std", "none"] = "none"
    """Divide the centred reward by the group's standard deviation, by that of the other samples,
    or leave it centred."""
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] = "fixed_length"
    """How token losses become one."""


class DapoSpec(GroupSpec):
    """GRPO with a higher upper clip and the penalty for overlong completions."""

    type: Literal["dapo"] = "dapo"
    """Which algorithm computes advantages and the objective."""
    clip_high: float = Field(default=0.28, gt=0)
    """Upper clip, a distance from 1."""
    overlong: Literal["keep", "mask", "penalty"] = "penalty"
    """What happens to completions near or at the token limit."""


class GspoSpec(GroupSpec):
    """GRPO with one ratio a completion."""

    type: Literal["gspo"] = "gspo"
    """Which algorithm computes advantages and the objective."""
    ratio: Literal["token", "sequence"] = "sequence"
    """Probability ratio of each token, or the geometric mean over a completion."""
    clip_low: float = Field(default=3e-4, gt=0)
    """Lower clip of the sequence ratio (GSPO paper)."""
    clip_high: float = Field(default=4e-4, gt=0)
    """Upper clip of the sequence ratio (GSPO paper)."""
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] = "sequence_mean"
    """How token losses become one."""


class CispoSpec(GroupSpec):
    """GRPO with the clipped ratio as a weight: no token loses its gradient (MiniMax-M1)."""

    type: Literal["cispo"] = "cispo"
    """Which algorithm computes advantages and the objective."""
    objective: Literal["clip", "cispo"] = "cispo"
    """Clipped ratio, or clipped weight."""
    clip_low: float = Field(default=1.0, gt=0)
    """Lower clip of the weight; 1 is no lower clip."""
    clip_high: float = Field(default=4.0, gt=0)
    """Upper clip of the weight, a distance from 1: it is capped at 5 (ScaleRL)."""


class RlooSpec(GroupSpec):
    """REINFORCE with the mean of the prompt's other samples as the baseline."""

    type: Literal["rloo"] = "rloo"
    """Which algorithm computes advantages and the objective."""
    baseline: Literal["mean", "leave_one_out"] = "leave_one_out"
    """The group's mean, or the mean of the other samples."""
    scale: Literal["std", "leave_one_out_std", "none"] = "none"
    """Divide the centred reward by a standard deviation, or leave it centred."""


class ReinforceSpec(ObjectiveSpec):
    """REINFORCE++: token returns, normalised over the batch or over the run."""

    type: Literal["reinforce"] = "reinforce"
    """Which algorithm computes advantages and the objective."""
    baseline: Literal["none", "group"] = "none"
    """Subtract the group's mean reward first, or nothing."""
    statistics: Literal["batch", "running"] = "batch"
    """Mean and standard deviation of this batch, or of every batch so far (global)."""
    level: Literal["token", "sequence"] = "token"
    """Statistics over action tokens (long completions weigh more) or over completions."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of later token rewards (KL in the reward, turns)."""
    ddof: Literal[0, 1] = 1
    """Degrees of freedom taken off in the standard deviation."""
    std_floor: float = Field(default=1e-3, ge=0)
    """Least standard deviation divided by."""


class PpoSpec(ObjectiveSpec):
    """PPO with a critic and generalised advantage estimation over action tokens."""

    type: Literal["ppo"] = "ppo"
    """Which algorithm computes advantages and the objective."""
    critic: Literal["separate", "head"] = "separate"
    """A second network that starts from the policy's weights, or a value head on the policy."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount a token."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Bias against variance of the advantage; 1 is the whole return less the value."""
    bootstrap_truncated: bool = False
    """Add the value of what would follow to completions that were cut at the token limit."""
    whiten: bool = True
    """Normalise advantages over the batch's action tokens (ddof 1)."""
    std_floor: float = Field(default=1e-3, ge=0)
    """Least standard deviation divided by."""
    value_coef: float = Field(default=0.1, gt=0)
    """Weight of the value loss. A value head shares the policy's weights: measured, 0.5 costs it a
    tenth of GRPO's gain and 0.1 nothing; a separate critic hardly notices."""
    value_clip: float | None = Field(default=0.2, gt=0)
    """The new value is not rewarded for moving further than this from the old one; null: off."""
    critic_lr: float | None = Field(default=None, gt=0, lt=1)
    """Peak learning rate of a separate critic; null: optim.lr."""
    critic_warmup_steps: int = Field(default=0, ge=0)
    """First steps in which only the critic learns."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Passes over one batch of rollouts."""


AlgorithmSpec = Annotated[
    GrpoSpec | DrGrpoSpec | DapoSpec | GspoSpec | CispoSpec | RlooSpec | ReinforceSpec | PpoSpec,
    Field(discriminator="type"),
]
"""The tagged union."""

ALGORITHM_NAMES: tuple[str, ...] = (
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "cispo",
    "rloo",
    "reinforce",
    "ppo",
)
"""Every algorithm; a test compares them with `engine/algo/build.py`."""
GROUP_ADVANTAGE_NAMES: frozenset[str] = frozenset(
    {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo"}
)
"""Algorithms whose baseline is the group: they need at least two samples per prompt."""
