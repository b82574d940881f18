"""A policy, a task, a reward and a recorder so small that a run takes less than a second."""

import dataclasses
from pathlib import Path

from stepladder.core.control import CONTINUE
from stepladder.core.prompt import Split, make_prompt
from stepladder.engine.llama import CompactLlama
from stepladder.engine.run import execute_run
from stepladder.engine.warmup import write_policy_folder
from stepladder.spec import ladder
from stepladder.spec.run import RunSpec

SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}


def tiny_policy(folder: Path, seed=0, dtype="float32", **config) -> Path:
    """Write a 1-layer Llama with random weights and the ladder's tokenizer."""
    import torch

    settings = {**ladder.ladder_config(ladder.LADDER["ladder-x1"]), **SHAPE, **config}
    model = CompactLlama.from_config(settings, seed=seed, dtype=getattr(torch, dtype))
    write_policy_folder(model, folder)
    return folder


class TinyTask:
    """Questions of different length; an answer is right when it begins with a digit."""

    name = "tiny"
    outcome = "digit"

    def prompts(self, split):
        start = {Split.TRAIN: 0, Split.EVAL: 100, Split.HOLDOUT: 200}[split]
        texts = [f"{n}{'+1' * (n % 3)}=" for n in range(start, start + 20)]
        return [make_prompt(text, "0", split) for text in texts]

    def oracle(self, prompt):
        return prompt.gold


class TinyReward:
    """Outcome: begins with a digit. Format: holds no capital letter."""

    def score(self, prompt, completion):
        text = completion.text
        return {
            "outcome": float(text[:1].isdigit()),
            "format": float(not any(character.isupper() for character in text)),
        }


class MemoryRecorder:
    """A Recorder that keeps rows in lists, as JSON-like values."""

    def __init__(self):
        self.steps, self.evals, self.dumps, self.events = [], [], [], []

    def step(self, metrics):
        self.steps.append(metrics)

    def evaluation(self, row, system):
        self.evals.append(row)

    def rollouts(self, step, groups):
        self.dumps.append((step, groups))

    def event(self, kind, step, **details):
        self.events.append((kind, step, details))

    def truncate_after(self, step):
        self.steps = [row for row in self.steps if row.step <= step]
        self.evals = [row for row in self.evals if row.step <= step]
        self.dumps = [dump for dump in self.dumps if dump[0] <= step]

    def curve(self):
        """Everything reproducible of the run."""
        rows = [dataclasses.replace(row, system={}) for row in self.steps]
        return rows, self.evals


def tiny_run(**changes) -> RunSpec:
    """Return a run of a few steps; `changes` are dotted paths with __ for the dot."""
    tree = {
        "seed": 1,
        "sampling": {"prompts_per_step": 4, "samples_per_prompt": 4, "max_new_tokens": 6},
        "optim": {"lr": 5e-3, "warmup_steps": 2},
        "eval": {"every": 4, "num_prompts": 8},
        "budget": {"steps": 6},
        "checkpoint": {"every": 3, "keep": 2},
    }
    for path, value in changes.items():
        section, _, leaf = path.partition("__")
        if leaf:
            tree.setdefault(section, {})[leaf] = value
        else:
            tree[section] = value
    return RunSpec.model_validate(tree)


def execute(run, model_folder, folder, recorder=None, observer=lambda metrics: CONTINUE, **more):
    """Execute a tiny run; return its end and its recorder."""
    recorder = recorder or MemoryRecorder()
    end = execute_run(
        run,
        model_folder=model_folder,
        task=TinyTask(),
        reward=TinyReward(),
        recorder=recorder,
        observer=observer,
        folder=folder,
        **more,
    )
    return end, recorder
