"""What one run would take: parameters, memory, tokens, operations; arithmetic only, no torch.

Memory is for one device that holds everything; what a framework keeps for itself is in the share
that is left free. Tokens and operations are upper bounds: every completion of full length.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepladder.core.errors import PlanError
from stepladder.spec.algorithm import AlgorithmSpec, PpoSpec
from stepladder.spec.model_shape import ModelShape
from stepladder.spec.run import LoraSpec, ModelSpec, RunSpec
from stepladder.study.model_size import model_shape, num_parameters

FREE_SHARE = 0.3
"""Share of the device's memory kept free (report A 4.1, report B 4.1)."""
VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}
OPTIMIZER_BYTES = {"float32": 8, "bfloat16": 12, "float64": 16}
"""AdamW a trained parameter: two moments, and a float32 copy of weights kept in bfloat16."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes of one thing that is kept, and how they were counted."""

    name: str
    num_bytes: float
    formula: str


@dataclass(frozen=True, slots=True)
class FlopPart:
    """Operations of one kind in the whole run: `factor` times parameters times tokens."""

    name: str
    factor: float
    parameters: float
    tokens: float

    @property
    def flops(self) -> float:
        """The product."""
        return self.factor * self.parameters * self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run, counted."""

    num_parameters: int
    num_trained: int
    num_computing: int
    """Parameters that multiply: all but an input embedding that is only looked up."""
    prompt_tokens: int
    updates_per_step: int
    trained_tokens: int
    """Tokens that the policy writes in the whole run, at most."""
    seen_tokens: int
    """The same with their prompts."""
    memory: tuple[MemoryPart, ...]
    """What is kept at once, the larger of the two working memories last."""
    flops: tuple[FlopPart, ...]

    @property
    def memory_bytes(self) -> float:
        """Everything that is kept at once."""
        return sum(part.num_bytes for part in self.memory)

    @property
    def device_bytes(self) -> float:
        """Memory of a device that holds it with the free share left."""
        return self.memory_bytes / (1 - FREE_SHARE)

    @property
    def total_flops(self) -> float:
        """Operations of the whole run."""
        return sum(part.flops for part in self.flops)


def plan_run(run: RunSpec, prompt_tokens: int) -> RunPlan:
    """Count one run whose prompts are at most `prompt_tokens` long.

    Raises
        PlanError: the model's size cannot be read.
    """
    total = num_parameters(run.model.path)
    if not total:
        raise PlanError(
            "SL0203",
            f"the number of parameters of {run.model.path!r} cannot be read",
            "model.path",
            "the folder needs safetensors weights, or a Llama-type config.json",
        )
    shape = model_shape(run.model.path)
    trained = _adapter_parameters(run.model.lora, shape) if run.model.lora else total
    looked_up = shape.num_embedding_parameters if shape and not shape.tied_embedding else 0
    prompt = min(prompt_tokens, run.model.max_prompt_tokens)
    written = run.budget.steps * run.batch_size * run.sampling.max_new_tokens
    seen = written + run.budget.steps * run.batch_size * prompt
    return RunPlan(
        num_parameters=total,
        num_trained=trained,
        num_computing=total - looked_up,
        prompt_tokens=prompt,
        updates_per_step=_updates(run),
        trained_tokens=written,
        seen_tokens=seen,
        memory=_memory(run, shape, total, trained, prompt),
        flops=_flops(run, total - looked_up, seen),
    )


def _updates(run: RunSpec) -> int:
    mini = run.optim.minibatch_size or run.batch_size
    return run.algorithm.updates_per_batch * (run.batch_size // mini)


def _adapter_parameters(lora: LoraSpec | None, shape: ModelShape | None) -> int:
    if lora is None or shape is None:
        raise PlanError(
            "SL0203",
            "the size of the adapters cannot be counted",
            "model.lora",
            "the model folder needs a Llama-type config.json",
        )
    width, inner = shape.hidden_size, shape.intermediate_size
    heads = shape.num_heads * shape.head_size
    ends = 2 * (width + heads) + 2 * (width + shape.key_value_size)
    if lora.targets == "all_linear":
        ends += 3 * (width + inner)
    return shape.num_layers * lora.rank * ends


def _memory(
    run: RunSpec, shape: ModelShape | None, total: int, trained: int, prompt: int
) -> tuple[MemoryPart, ...]:
    size, moments = VALUE_BYTES[run.model.dtype], OPTIMIZER_BYTES[run.model.dtype]
    small = 4 if run.model.lora and size == 2 else size  # peft keeps adapters in float32
    own = 8 if run.model.lora and size == 2 else moments
    kept = total + trained if run.model.lora else total
    parts = [
        MemoryPart("weights", size * kept, f"{size} x {kept:,}"),
        MemoryPart("gradients", small * trained, f"{small} x {trained:,}"),
        MemoryPart("optimizer", own * trained, f"{own} x {trained:,}"),
    ]
    if _separate_critic(run.algorithm):
        each = 2 * size + moments
        parts.append(
            MemoryPart("critic", each * total, f"({size} + {size} + {moments}) x {total:,}")
        )
    if run.kl.measured:
        parts.append(MemoryPart("reference", small * trained, f"{small} x {trained:,}"))
    if run.kl.budget is not None and run.kl.reference != "frozen":
        parts.append(MemoryPart("base", small * trained, f"{small} x {trained:,}"))
    if run.kl.cap is not None and run.kl.cap_action == "restore":
        parts.append(
            MemoryPart("healthy", (small + own) * trained, f"({small} + {own}) x {trained:,}")
        )
    if shape is not None:
        working = (_activations(run, shape, prompt), _cache(run, shape, prompt))
        parts.append(max(working, key=lambda part: part.num_bytes))
    return tuple(parts)


def _activations(run: RunSpec, shape: ModelShape, prompt: int) -> MemoryPart:
    """What a training pass keeps for its gradient; fused attention keeps no score matrix."""
    size = VALUE_BYTES[run.model.dtype]
    rollouts = run.optim.microbatch_size or run.optim.minibatch_size or run.batch_size
    tokens = rollouts * (prompt + run.sampling.max_new_tokens)
    actions = rollouts * run.sampling.max_new_tokens
    layer = _layer_width(shape)
    words = 2 * 4 * actions * shape.vocabulary_size
    if run.model.gradient_checkpointing:
        kept = shape.num_layers * shape.hidden_size + layer
        formula = f"{size} x {tokens:,} x ({shape.num_layers} x {shape.hidden_size:,} + {layer:,})"
    else:
        kept = shape.num_layers * layer
        formula = f"{size} x {tokens:,} x {shape.num_layers} x {layer:,}"
    formula += f" + 8 x {actions:,} x {shape.vocabulary_size:,}"
    return MemoryPart("activations", size * tokens * kept + words, formula)


def _layer_width(shape: ModelShape) -> int:
    """Values that one layer keeps a token: 4 of the width, 2 of heads, keys, values, 4 inner."""
    heads = shape.num_heads * shape.head_size
    return (
        4 * shape.hidden_size + 2 * heads + 2 * shape.key_value_size + 4 * shape.intermediate_size
    )


def _cache(run: RunSpec, shape: ModelShape, prompt: int) -> MemoryPart:
    size = VALUE_BYTES[run.model.dtype]
    tokens = run.batch_size * (prompt + run.sampling.max_new_tokens)
    width = 2 * shape.key_value_size
    formula = f"{size} x {tokens:,} x {shape.num_layers} x {width:,}"
    return MemoryPart("cache", size * tokens * shape.num_layers * width, formula)


def _flops(run: RunSpec, computing: int, seen: int) -> tuple[FlopPart, ...]:
    passes = run.algorithm.updates_per_batch
    parts = [
        FlopPart("sampling", 2, computing, seen),
        FlopPart("training", _training_factor(run.model), computing, passes * seen),
    ]
    if _updates(run) > 1 or run.algorithm.importance_cap is not None:
        parts.append(FlopPart("old", 2, computing, seen))
    if run.kl.measured:
        parts.append(FlopPart("reference", 2, computing, seen))
    if run.kl.budget is not None and run.kl.reference != "frozen":
        parts.append(FlopPart("base", 2, computing, seen))
    if _separate_critic(run.algorithm):
        parts.append(FlopPart("critic_values", 2, computing, seen))
        parts.append(FlopPart("critic_training", 6, computing, passes * seen))
    return tuple(parts)


def _training_factor(model: ModelSpec) -> int:
    """2 forward and 4 backward; adapters need no gradient of the weights; checkpointing 2 more."""
    return (4 if model.lora else 6) + (2 if model.gradient_checkpointing else 0)


def _separate_critic(algorithm: AlgorithmSpec) -> bool:
    return isinstance(algorithm, PpoSpec) and algorithm.critic == "separate"
