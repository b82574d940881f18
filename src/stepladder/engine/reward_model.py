"""The model of a learned reward: a causal LM with a scalar head, trained on preferences.

Bradley-Terry: -log sigmoid(score of the chosen - score of the rejected). The first training is
done before the run's first step, on rollouts of the base policy; a refresh goes on from there with
preferences from the run's own rollouts. Gold labels both; see `rewards/learned.py`.
Axes: K preferences, N rows, D hidden.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepladder.core.control import ControlEvent
from stepladder.core.prompt import Prompt
from stepladder.core.rng import seed_for
from stepladder.core.rollout import Completion, RolloutGroup, SamplingParams
from stepladder.core.seams import Reward, Sampler
from stepladder.engine.adamw import AdamW, AdamWSettings
from stepladder.engine.batch import PackedRollouts
from stepladder.engine.load import load_policy
from stepladder.engine.policy import Backbone
from stepladder.engine.preferences import (
    Preference,
    draw_preferences,
    from_tensors,
    pack_completions,
    pack_preferences,
    pack_rows,
    pair_up,
    to_tensors,
    with_flips,
)
from stepladder.rewards.learned import GOLD, LearnedReward, LearnedSpec
from stepladder.spec.run import RunSpec

ROWS_AT_ONCE = 256
HELD_OUT = 8
"""One of so many preferences is held out; its label is never flipped."""
MAX_GRAD_NORM = 1.0
WARMUP_SHARE = 0.1
HEAD = "reward_head.weight"
STORES = ("first", "newest")


class RewardModel:
    """Scores completions by their last token; its scale is that of the first preferences."""

    def __init__(self, backbone: Backbone, spec: LearnedSpec) -> None:
        self.spec = spec
        self.backbone = backbone
        self.device = next(backbone.model.parameters()).device
        with torch.no_grad():
            width = self._hidden(pack_rows([([0], [])], [0])).shape[1]
        self.head_D = nn.Parameter(torch.zeros(width, device=self.device))
        self.mean, self.std = 0.0, 1.0
        self.num_refreshes = 0
        self.first: list[Preference] = []
        """What the first training saw and held out; the scale is taken on it."""
        self.newest: deque[Preference] = deque(maxlen=spec.refresh_pairs)
        """Since the last refresh."""
        self._untold: ControlEvent | None = None

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return all weights, by name."""
        return {**dict(self.backbone.model.named_parameters()), HEAD: self.head_D}

    def _hidden(self, packed: PackedRollouts) -> Tensor:
        """Return float32 hidden_ND at each row's last token."""
        packed = packed.to(self.device)
        row_N = torch.arange(packed.num_rollouts, device=self.device)
        return self.backbone.hidden_at(packed, row_N, packed.length_N - 1).float()

    def _raw(self, packed: PackedRollouts) -> Tensor:
        """Return each row's score before it is brought to scale."""
        return self._hidden(packed) @ self.head_D

    @torch.no_grad()
    def _raw_of_pairs(self, preferences: Sequence[Preference]) -> Tensor:
        """Return scores [K, 2] of chosen and rejected."""
        size = ROWS_AT_ONCE // 2
        parts = (preferences[at : at + size] for at in range(0, len(preferences), size))
        return torch.cat([self._raw(pack_preferences(part)).view(-1, 2) for part in parts])

    @torch.no_grad()
    def scores(self, completions: Sequence[Completion]) -> list[float]:
        """Return one score a completion, in order."""
        found: list[float] = []
        for at in range(0, len(completions), ROWS_AT_ONCE):
            packed = pack_completions(completions[at : at + ROWS_AT_ONCE])
            found.extend(((self._raw(packed).double() - self.mean) / self.std).tolist())
        return found

    def accuracy(self, preferences: Sequence[Preference]) -> float:
        """Return the share of preferences that it ranks right; a tie counts one half."""
        margin_K = self._raw_of_pairs(preferences).diff(dim=1)[:, 0]
        return float(((margin_K < 0).double() + 0.5 * (margin_K == 0).double()).mean())

    def train_first(self, preferences: Sequence[Preference]) -> None:
        """Train on the first preferences, the last ones held out, and take the scale."""
        self.first = list(preferences)
        num_held = max(1, len(preferences) // (HELD_OUT + 1))
        train, held_out = preferences[:-num_held], preferences[-num_held:]
        loss = self._fit(train, "first")
        self._take_scale()
        self._untold = ControlEvent(
            kind="reward_model_trained",
            details={
                "num_pairs": len(train),
                "num_held_out": num_held,
                "noise": self.spec.noise,
                "loss": loss,
                "accuracy": self.accuracy(held_out),
            },
        )

    def after_step(self, step: int, groups: Sequence[RolloutGroup]) -> ControlEvent | None:
        """Gather the step's preferences and refresh when it is due; return what was done, once.

        At a refresh the newest eighth is held out; `accuracy_before` is the old model's on all.
        """
        told, self._untold = self._untold, None
        every = self.spec.refresh_every
        if not every:
            return told
        rng = random.Random(seed_for("reward_pairs", self.spec.seed, step))
        found = pair_up(groups, rng, lambda rollout: rollout.terms[GOLD])
        rng.shuffle(found)
        self.newest.extend(found)
        if step % every or len(self.newest) < HELD_OUT:
            return told
        fresh = list(self.newest)
        train, held_out = fresh[: -(len(fresh) // HELD_OUT)], fresh[-(len(fresh) // HELD_OUT) :]
        before, before_held_out = self.accuracy(fresh), self.accuracy(held_out)
        loss = self._fit(train, f"refresh {step}")
        self._take_scale()
        self.newest.clear()
        self.num_refreshes += 1
        return ControlEvent(
            kind="reward_model_refreshed",
            details={
                **{f"first_{k}": v for k, v in (told.details if told else {}).items()},
                "num_pairs": len(train),
                "num_held_out": len(held_out),
                "loss": loss,
                "accuracy_before": before,
                "accuracy_held_out_before": before_held_out,
                "accuracy": self.accuracy(held_out),
                "response": "trained on preferences from the newest rollouts",
            },
        )

    def _fit(self, preferences: Sequence[Preference], phase: str) -> float:
        """Train in place with fresh moments; return the mean loss of the last epoch."""
        spec = self.spec
        weights = self.named_parameters()
        optimizer = AdamW(weights, AdamWSettings())
        rng = random.Random(seed_for("reward_fit", spec.seed, phase))
        labelled = with_flips(preferences, spec.noise, rng)
        size = min(spec.batch_pairs, len(labelled))
        # What is left over of an epoch has its turn in another one.
        num_steps = spec.epochs * (len(labelled) // size)
        losses: list[float] = []
        for step in range(num_steps):
            at = step % (len(labelled) // size) * size
            if at == 0:
                rng.shuffle(labelled)
                losses.clear()
            raw_K2 = self._raw(pack_preferences(labelled[at : at + size])).view(-1, 2)
            loss = functional.softplus(raw_K2[:, 1] - raw_K2[:, 0]).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(weights.values(), MAX_GRAD_NORM)
            optimizer.step(spec.lr * _schedule(step, num_steps))
            for weight in weights.values():
                weight.grad = None
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def _take_scale(self) -> None:
        """Set mean 0 and standard deviation 1 on the first preferences' completions.

        After a refresh, too: Bradley-Terry leaves the offset free, and KL and entropy terms need
        rewards of a steady size.
        """
        raw = self._raw_of_pairs(self.first).double()
        self.mean = float(raw.mean())
        self.std = float(raw.std(correction=0)) or 1.0

    def state(self) -> dict[str, Tensor]:
        """Return weights, scale and kept preferences."""
        found = {f"weights/{n}": w.detach() for n, w in self.named_parameters().items()}
        found["scale"] = torch.tensor([self.mean, self.std], dtype=torch.float64)
        if self.spec.refresh_every:
            for name in STORES:
                kept = to_tensors(list(getattr(self, name)))
                found |= {f"{name}/{key}": value for key, value in kept.items()}
        return found

    def json_state(self) -> dict[str, Any]:
        """Return counters."""
        return {"num_refreshes": self.num_refreshes}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        for name, weight in self.named_parameters().items():
            weight.copy_(tensors[f"weights/{name}"])
        self.mean, self.std = tensors["scale"].tolist()
        self.num_refreshes = int(values["num_refreshes"])
        self._untold = None
        if self.spec.refresh_every:
            first, newest = (
                from_tensors({key: tensors[f"{name}/{key}"] for key in ("tokens", "lengths")})
                for name in STORES
            )
            self.first = first
            self.newest.clear()
            self.newest.extend(newest)


def _schedule(step: int, num_steps: int) -> float:
    """Return the share of the peak learning rate: a linear rise, then linear to 0."""
    rise = max(1, round(WARMUP_SHARE * num_steps))
    return (step + 1) / rise if step < rise else (num_steps - step) / (num_steps - rise + 1)


def attach_reward_model(
    reward: Reward, run: RunSpec, model_folder: Path, sampler: Sampler, prompts: Sequence[Prompt]
) -> RewardModel | None:
    """Build, train and attach the model of a learned reward; None for any other reward.

    The sampler's policy must still be the base policy. Prompts are the train split's.

    Raises
        SpecError: the base policy's completions hardly differ in gold reward.
    """
    if not isinstance(reward, LearnedReward):
        return None
    spec = reward.spec
    plain = run.model.model_copy(update={"lora": None})
    model = RewardModel(load_policy(model_folder, plain, 1.0).backbone, spec)
    params = SamplingParams(
        max_new_tokens=run.sampling.max_new_tokens,
        temperature=run.sampling.temperature,
        seed=spec.seed,
    )
    count = spec.pairs + -(-spec.pairs // HELD_OUT)
    model.train_first(draw_preferences(reward.gold, sampler, prompts, count, params))
    reward.model = model
    return model
