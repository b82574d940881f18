"""Every convention on which trainers differ, as this run has it; written into run.json.

Two runs that share settings but not these are not comparable. Each value is a short name or a
number; docs/algorithms.md says which settings reproduce which peer.
"""

from __future__ import annotations

from stepladder.spec.algorithm import AlgorithmSpec, GroupSpec, PpoSpec, ReinforceSpec
from stepladder.spec.run import RunSpec

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +- this before exp; a test compares it with the engine's."""
OFF = "off"

Conventions = dict[str, str | float]


def conventions(run: RunSpec) -> Conventions:
    """Return name -> convention of one run."""
    return {
        **_advantage(run.algorithm),
        **_objective(run.algorithm),
        **_loss(run),
        **_kl(run),
        "entropy": "exact over the vocabulary",
        "entropy_temperature": run.sampling.temperature,
        "logp_temperature": run.sampling.temperature,
        "metric_mean": "token mean over action tokens of kept rollouts",
        **_optimizer(run),
    }


def _advantage(spec: AlgorithmSpec) -> Conventions:
    found: Conventions = {
        "algorithm": spec.type,
        "advantage_precision": "float64",
        "terminal_reward": "on the last trainable token",
        "failed_rollouts": "neither counted in statistics nor credited",
    }
    if isinstance(spec, GroupSpec):
        return {
            **found,
            "advantage_baseline": f"group {spec.baseline}",
            "advantage_scale": spec.scale,
            "std_ddof": spec.ddof,
            "std_floor": spec.std_floor,
            "std_epsilon": spec.std_epsilon,
            "zero_variance": "rewards exactly equal: advantage exactly 0",
        }
    if isinstance(spec, ReinforceSpec):
        return {
            **found,
            "advantage_baseline": f"{spec.baseline}, then the {spec.statistics} mean",
            "advantage_scale": f"{spec.statistics} std over {spec.level}s",
            "std_ddof": spec.ddof,
            "std_floor": spec.std_floor,
            "gamma": spec.gamma,
            "masked_tokens": "skipped: carry returns across",
        }
    return {**found, **_critic(spec)}


def _critic(spec: PpoSpec) -> Conventions:
    return {
        "advantage_baseline": f"critic ({spec.critic})",
        "advantage_scale": "batch std over tokens" if spec.whiten else "none",
        "std_ddof": 1,
        "std_floor": spec.std_floor,
        "gamma": spec.gamma,
        "gae_lambda": spec.gae_lambda,
        "masked_tokens": "skipped: carry value and advantage across",
        "value_after_cut": "bootstrapped" if spec.bootstrap_truncated else "0",
        "returns": "advantage + value before whitening",
        "value_loss": "0.5 * max(plain square, clipped square)",
        "value_clip": _or_off(spec.value_clip),
        "value_clip_unit": "reward",
        "value_coef": spec.value_coef,
    }


def _objective(spec: AlgorithmSpec) -> Conventions:
    cispo = spec.objective == "cispo"
    return {
        "objective": spec.objective,
        "ratio_level": "geometric mean of a completion" if spec.ratio == "sequence" else "token",
        "log_ratio_clamp": LOG_RATIO_LIMIT,
        "clip_low": spec.clip_low,
        "clip_high": spec.clip_high,
        "clip_unit": "distance of the ratio from 1",
        "cispo_weight_cap": 1 + spec.clip_high if cispo else OFF,
        "dual_clip": OFF if cispo else _or_off(spec.dual_clip),
        "clip_fraction": "share of tokens with a ratio outside the range, whatever the sign"
        if cispo
        else "share of tokens where the clip acts: sign-relevant, low and high apart",
        "importance": OFF
        if spec.importance_cap is None
        else f"trainer over sampler, truncated, {_level(spec)}",
        "importance_cap": _or_off(spec.importance_cap),
    }


def _level(spec: AlgorithmSpec) -> str:
    if spec.importance_level == "sequence":
        return "geometric mean of a completion"
    return "token"


def _loss(run: RunSpec) -> Conventions:
    spec = run.algorithm
    means = {
        "token_mean": "mean over action tokens of the update",
        "sequence_mean": "mean over completions of token means",
        "fixed_length": "sum over (completions x max_new_tokens)",
    }
    found: Conventions = {
        "aggregation": means[spec.aggregation],
        "aggregation_scope": "one optimiser update, whatever the micro-batches",
        "kl_and_entropy_aggregation": "as the policy term's",
        "overlong": spec.overlong,
        "updates_per_step": spec.updates_per_batch
        * (run.batch_size // (run.optim.minibatch_size or run.batch_size)),
    }
    if spec.aggregation == "fixed_length":
        found["aggregation_constant"] = run.sampling.max_new_tokens
    return found


def _kl(run: RunSpec) -> Conventions:
    kl = run.kl
    if not kl.measured:
        return {"kl": OFF}
    return {
        "kl_estimator": kl.estimator,
        "kl_placement": kl.placement,
        "kl_gradient": "k2's: unbiased on the policy's own samples"
        if kl.placement == "loss"
        else "none: part of the token's reward",
        "kl_log_ratio_clamp": LOG_RATIO_LIMIT,
        "kl_output_clamp": OFF,
        "kl_measured": "token mean of k3 in nats",
        "kl_controller": kl.controller,
        "kl_controller_count": "rollouts" if kl.controller == "adaptive" else OFF,
        "kl_reference": kl.reference,
        "kl_cap": _or_off(kl.cap),
        "kl_cap_action": kl.cap_action if kl.cap is not None else OFF,
        "kl_budget": _or_off(kl.budget),
    }


def _optimizer(run: RunSpec) -> Conventions:
    return {
        "grad_norm": "2-norm over all trained weights, before clipping",
        "grad_clip": run.optim.clip,
        "weight_decay": "decoupled",
        "warmup": "linear from 0, counted in steps",
        "master_weights": "float32" if run.model.dtype == "bfloat16" else run.model.dtype,
    }


def _or_off(value: float | None) -> str | float:
    return OFF if value is None else value
