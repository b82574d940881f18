"""The objective in plain float64 NumPy, rollout by rollout and token by token, and ragged batches.

Written from the formulas alone; nothing here calls the engine's arithmetic.
"""

import numpy as np
import torch

from stepladder.engine.batch import PackedRollouts, RolloutBatch, TokenLogprobs

EMPTY, FAILED = 2, 4
"""Rows without an action token, and of weight 0."""


def ragged_batch(seed=0, n=7, t=9, dtype=torch.float64, masked=0.0, **changes):
    """Return a batch and what a policy says of it; `masked` stands wherever nothing trains."""
    g = torch.Generator().manual_seed(seed)
    prompt_N = torch.randint(1, 4, (n,), generator=g)
    length_N = prompt_N + torch.randint(1, t - 3, (n,), generator=g)
    place_T = torch.arange(t)
    inside_NT = (place_T >= prompt_N[:, None]) & (place_T < length_N[:, None])
    action_NT = inside_NT & (torch.rand(n, t, generator=g) < 0.8)
    action_NT[EMPTY] = False
    weight_N = torch.ones(n, dtype=dtype)
    weight_N[FAILED] = 0
    live_NT = action_NT & (weight_N[:, None] > 0)

    def normal(scale, around=0.0):
        drawn_NT = around + scale * torch.randn(n, t, generator=g, dtype=torch.float64)
        return torch.where(live_NT, drawn_NT, masked).to(dtype)

    old_NT, value_NT = normal(0.5, -1.5), normal(1.0)
    fields = {
        "tokens_NT": torch.randint(0, 5, (n, t), generator=g),
        "action_NT": action_NT,
        "sampler_logp_NT": old_NT + normal(0.3),
        "token_reward_NT": torch.zeros(n, t, dtype=dtype),
        "reward_N": torch.zeros(n, dtype=dtype),
        "weight_N": weight_N,
        "group_N": torch.arange(n) // 2,
        "version_N": torch.zeros(n, dtype=torch.long),
        "prompt_length_N": prompt_N,
        "length_N": length_N,
        "terminal_N": torch.ones(n, dtype=torch.bool),
        "truncated_N": torch.zeros(n, dtype=torch.bool),
        "old_logp_NT": old_NT,
        "ref_logp_NT": old_NT + normal(0.4),
        "base_logp_NT": old_NT + normal(0.6),
        "value_NT": value_NT,
    }
    batch = RolloutBatch(
        packed=PackedRollouts(**{**fields, **changes}),
        advantage_NT=normal(1.0),
        return_NT=normal(1.0),
        # Weights of their own, so that a term that forgets them is seen.
        loss_weight_NT=torch.where(live_NT, torch.rand(n, t, generator=g), 0.0).to(dtype),
    )
    new = TokenLogprobs(
        logp_NT=old_NT + normal(0.4),
        entropy_NT=normal(0.2, 1.0),
        value_NT=value_NT + normal(0.4),
    )
    return batch, new


def objective(batch, new, settings):
    """Return the loss, the sums over action tokens and the largest ratio."""
    packed = batch.packed
    arrays = {
        "logp": new.logp_NT,
        "old": packed.old_logp_NT if packed.old_logp_NT is not None else new.logp_NT,
        "sampler": packed.sampler_logp_NT,
        "ref": packed.ref_logp_NT,
        "base": packed.base_logp_NT,
        "a": batch.advantage_NT,
        "weight": batch.loss_weight_NT,
        "entropy": new.entropy_NT,
        "v": new.value_NT,
        "v_old": packed.value_NT,
        "ret": batch.return_NT,
    }
    arrays = {k: as_float64(v) for k, v in arrays.items() if v is not None}
    action_NT, keep_N = packed.action_NT.numpy(), packed.weight_N.numpy() > 0
    loss, sums, ratios = 0.0, {}, [0.0]
    for row in np.flatnonzero(keep_N & action_NT.any(1)):
        places = np.flatnonzero(action_NT[row])
        at = {name: array[row, places] for name, array in arrays.items()}
        for index in range(len(places)):
            token, found = token_loss(at, index, settings)
            loss += at["weight"][index] * token
            ratios.append(found["ratio"])
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + float(value)
    return loss, sums, max(ratios)


def token_loss(at, i, s):
    """Return one token's loss and what is measured of it; `at` holds its rollout's tokens."""
    log_ratios = at["logp"] - at["old"]
    ratio = np.exp(log_ratios.mean() if s.ratio == "sequence" else log_ratios[i])
    a, found = at["a"][i], {"tokens": 1.0, "ratio": ratio, "dual_clip": 0.0}
    low, high = 1 - s.clip_low, 1 + s.clip_high
    found["ratio_outside"] = not low <= ratio <= high
    if s.objective == "cispo":
        policy = -min(max(ratio, low), high) * a * at["logp"][i]
        found |= {"clip_low": ratio < low, "clip_high": ratio > high}
    else:
        policy = max(-ratio * a, -min(max(ratio, low), high) * a)
        found |= {"clip_low": ratio < low and a < 0, "clip_high": ratio > high and a > 0}
        if s.dual_clip is not None and a < 0:
            found["dual_clip"] = policy > -s.dual_clip * a
            policy = min(policy, -s.dual_clip * a)
    if s.importance_cap is not None:
        log_weights = at["old"] - at["sampler"]
        raw = np.exp(log_weights.mean() if s.importance_level == "sequence" else log_weights[i])
        policy *= min(raw, s.importance_cap)
        found["importance_weight"] = min(raw, s.importance_cap)
        found["importance_capped"] = raw > s.importance_cap
    found |= {"policy_loss": policy, "entropy": at["entropy"][i]}
    found |= {"logp": at["logp"][i], "logp_squared": at["logp"][i] ** 2}
    found["logp_difference"] = abs(at["sampler"][i] - at["old"][i])
    found["old_new"] = k3(at["old"][i] - at["logp"][i])
    found["sampler_k3"] = k3(at["sampler"][i] - at["old"][i])
    total = policy - s.entropy_coef * at["entropy"][i]
    if "base" in at:
        found["base_k3"] = k3(at["logp"][i] - at["base"][i])
    if "ref" in at:
        d = at["logp"][i] - at["ref"][i]
        found |= {"kl_k1": d, "kl_k3": k3(d), "kl_k3_squared": k3(d) ** 2}
        total += s.kl_coef * {"k1": d, "k2": d * d / 2, "k3": k3(d)}[s.kl_estimator]
    value = value_loss(at, i, s, found) if "v" in at and "ret" in at else 0.0
    return (total if s.train_policy else 0.0) + s.value_coef * value, found


def value_loss(at, i, s, found):
    """Return PPO's value loss of one token."""
    v, old, ret = at["v"][i], at["v_old"][i], at["ret"][i]
    loss, found["value_clipped"] = 0.5 * (v - ret) ** 2, 0.0
    if s.value_clip is not None:
        near = min(max(v, old - s.value_clip), old + s.value_clip)
        found["value_clipped"] = near != v and abs(near - ret) > abs(v - ret)
        loss = max(loss, 0.5 * (near - ret) ** 2)
    found["value_loss"] = loss
    return loss


def k3(d):
    """Return the low-variance estimate for one log-ratio."""
    return np.exp(-d) - 1 + d


def as_float64(tensor):
    """Return a tensor's values as NumPy float64."""
    return tensor.detach().double().numpy()
