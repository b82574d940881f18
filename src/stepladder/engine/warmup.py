"""Train a base policy of the embedded ladder on demonstrations, some of them wrong on purpose.

RL needs headroom over a skill that the base already has; an under-trained base gives RL little to
find (reference/performance.md), so the noise is in the demonstrations. Deterministic on one
thread. Called by the worker's warm-up job; the result is a Hugging Face folder.

Axes: M demonstrations, B batch rows, T tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from torch.nn import functional

from stepladder.engine.adamw import AdamW, AdamWSettings
from stepladder.engine.llama import CompactLlama
from stepladder.spec import ladder
from stepladder.spec.ladder import LadderSize, WarmupRecipe

_ANSWER = re.compile(r"<answer>([\s\S]*?)</answer>")


def demonstrations(
    solved: Sequence[tuple[str, str, str]], recipe: WarmupRecipe, seed: int
) -> list[tuple[str, str]]:
    """Return (prompt, completion) pairs of (prompt, oracle completion, gold answer) triples.

    A share of `recipe.corrupted_share` ends in a wrong answer, the scratchpad left as it was.
    """
    rng = random.Random(seed)
    return [
        (
            prompt,
            corrupt_answer(completion, gold, rng)
            if rng.random() < recipe.corrupted_share
            else completion,
        )
        for prompt, completion, gold in solved
    ]


def corrupt_answer(completion: str, gold: str, rng: random.Random) -> str:
    """Return the completion with one character of its answer replaced by another of its kind.

    The answer stands between answer tags; without tags it is the last occurrence of `gold`. An
    answer without a digit or an ASCII letter stays as it is.
    """
    found = _ANSWER.search(completion)
    start = completion.rfind(gold) if found is None else found.start(1)
    answer = gold if found is None else found.group(1)
    places = [place for place, character in enumerate(answer) if _others(character)]
    if start < 0 or not places:
        return completion
    place = rng.choice(places)
    at = start + place
    return completion[:at] + rng.choice(_others(answer[place])) + completion[at + 1 :]


def _others(character: str) -> str:
    """Return the characters that may stand in for a digit or an ASCII letter; else nothing."""
    for kind in ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        if character in kind:
            return kind.replace(character, "")
    return ""


def build_base_policy(
    size: LadderSize,
    demonstrations: Sequence[tuple[str, str]],
    recipe: WarmupRecipe,
    folder: Path,
    *,
    prompt_weight: float = 0.0,
) -> dict[str, Any]:
    """Train `size` on (prompt text, completion text) pairs and write its Hugging Face folder.

    Completions come without the end-of-sequence token. `prompt_weight` is the loss weight of the
    prompt's own tokens. The folder appears at once, complete, or not at all; one that is there
    already is replaced. Returns what was done: loss, steps, parameters, seconds.
    """
    started = time.perf_counter()
    model = CompactLlama.from_config(ladder.ladder_config(size), seed=recipe.seed)
    token_MT, weight_MT = _encoded(demonstrations, prompt_weight)
    loss = _fit(model, token_MT, weight_MT, size, recipe)
    report = {
        "size": size.name,
        "num_parameters": sum(weight.numel() for weight in model.parameters()),
        "num_demonstrations": len(demonstrations),
        "steps": recipe.steps,
        "loss_per_token": loss,
        "seconds": time.perf_counter() - started,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        ready = Path(scratch) / folder.name
        write_policy_folder(model, ready)
        if folder.exists():
            shutil.rmtree(folder)
        ready.rename(folder)
    return report


def _encoded(
    demonstrations: Sequence[tuple[str, str]], prompt_weight: float
) -> tuple[Tensor, Tensor]:
    """Return right-padded tokens [M, T] and each token's loss weight [M, T]."""
    tokens, weights = [], []
    for prompt, completion in demonstrations:
        asked = [ladder.BOS_ID, *ladder.token_ids(prompt)]
        answered = [*ladder.token_ids(completion), ladder.EOS_ID]
        tokens.append(asked + answered)
        weights.append([0.0] + [prompt_weight] * (len(asked) - 1) + [1.0] * len(answered))
    length = max(len(row) for row in tokens)
    padded = [row + [ladder.PAD_ID] * (length - len(row)) for row in tokens]
    padded_weights = [row + [0.0] * (length - len(row)) for row in weights]
    return torch.tensor(padded), torch.tensor(padded_weights)


def _fit(
    model: CompactLlama,
    token_MT: Tensor,
    weight_MT: Tensor,
    size: LadderSize,
    recipe: WarmupRecipe,
) -> float:
    """Train in place; return the mean token loss of the last tenth of the steps."""
    generator = torch.Generator().manual_seed(recipe.seed)
    peak = recipe.peak_learning_rate(size)
    settings = AdamWSettings(beta2=0.98, weight_decay=recipe.weight_decay)
    optimizer = AdamW(dict(model.named_parameters()), settings)
    losses = []
    for step in range(recipe.steps):
        rows = torch.randint(len(token_MT), (recipe.batch_size,), generator=generator)
        loss = _token_loss(model, token_MT[rows], weight_MT[rows])
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step(peak * _schedule(step, recipe))
        losses.append(loss.item())
    tail = losses[-max(1, recipe.steps // 10) :]
    return sum(tail) / max(1, len(tail))


def _schedule(step: int, recipe: WarmupRecipe) -> float:
    """Return the share of the peak learning rate: a linear rise, then a cosine to a tenth."""
    rise = max(1, round(recipe.warmup_share * recipe.steps))
    if step < rise:
        return (step + 1) / rise
    progress = (step - rise) / max(1, recipe.steps - rise)
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * progress))


def _token_loss(model: CompactLlama, token_BT: Tensor, weight_BT: Tensor) -> Tensor:
    """Return the weighted mean cross entropy; logits only where a weight is not zero."""
    hidden_BTD = model.forward_padded(token_BT[:, :-1])
    chosen_BT = weight_BT[:, 1:] > 0
    logits_KV = model.logits(hidden_BTD[chosen_BT])
    weight_K = weight_BT[:, 1:][chosen_BT]
    loss_K = functional.cross_entropy(logits_KV, token_BT[:, 1:][chosen_BT], reduction="none")
    return (loss_K * weight_K).sum() / weight_K.sum()


def write_policy_folder(model: CompactLlama, folder: Path) -> None:
    """Write weights, config, generation config and tokenizer as the Auto classes read them."""
    model.save_folder(folder)
    special = {"pad": ladder.PAD, "bos": ladder.BOS, "eos": ladder.EOS}
    ids = {f"{name}_token_id": ladder.TOKEN_ID[text] for name, text in special.items()}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name}_token": text for name, text in special.items()},
        "chat_template": ladder.CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": ladder.MAX_POSITIONS,
        "padding_side": "left",
    }
    _write_json(folder / "generation_config.json", {**ids, "do_sample": True})
    _write_json(folder / "tokenizer_config.json", settings)
    ladder_tokenizer().save(str(folder / "tokenizer.json"))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def ladder_tokenizer() -> Tokenizer:
    """Return the character tokenizer; it agrees with `spec.ladder.token_ids`, plus a <bos>."""
    vocabulary = dict(ladder.TOKEN_ID)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=ladder.UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    # Tags are not special: decoding must keep them for the format reward.
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in ladder.TAGS])
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False) for text in (ladder.PAD, ladder.BOS, ladder.EOS)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{ladder.BOS} $A", special_tokens=[(ladder.BOS, ladder.BOS_ID)]
    )
    return tokenizer
