"""ModelShape: the sizes of a decoder in the Llama family, to count by; no weights.

`shape:2048x24x16` (width x layers x heads) names one that exists nowhere: it can be planned, not
trained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PLANNING_VOCABULARY = 32_000
"""Vocabulary of a shape that names none: Llama's first."""
INTERMEDIATE_MULTIPLE = 128
_NAME = re.compile(r"shape:(\d+)x(\d+)x(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes that parameters, memory and operations follow from."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_key_value_heads: int
    head_size: int
    intermediate_size: int
    vocabulary_size: int
    tied_embedding: bool

    @property
    def key_value_size(self) -> int:
        """Width of the keys, and of the values, of one token in one layer."""
        return self.num_key_value_heads * self.head_size

    @property
    def num_embedding_parameters(self) -> int:
        """Parameters of the input embedding, which is looked up and costs no operations."""
        return self.vocabulary_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """Parameters, a tied embedding counted once."""
        width = self.hidden_size
        attention = 2 * width * (self.num_heads * self.head_size + self.key_value_size)
        layer = attention + 3 * width * self.intermediate_size + 2 * width
        embeddings = self.num_embedding_parameters * (1 if self.tied_embedding else 2)
        return embeddings + self.num_layers * layer + width


def planning_shape(hidden_size: int, num_layers: int, num_heads: int) -> ModelShape:
    """Return a shape whose other sizes are the usual ones: SwiGLU of 8/3 of the width, untied."""
    inner = hidden_size * 4 * 2 / 3
    return ModelShape(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_key_value_heads=num_heads,
        head_size=hidden_size // num_heads,
        intermediate_size=max(1, round(inner / INTERMEDIATE_MULTIPLE)) * INTERMEDIATE_MULTIPLE,
        vocabulary_size=PLANNING_VOCABULARY,
        tied_embedding=False,
    )


def shape_name(hidden_size: int, num_layers: int, num_heads: int) -> str:
    """Return the `model.path` of a planning shape."""
    return f"shape:{hidden_size}x{num_layers}x{num_heads}"


def read_shape_name(path: str) -> ModelShape | None:
    """Return the shape that a `model.path` names; None when it names weights."""
    found = _NAME.fullmatch(path)
    if found is None:
        return None
    width, layers, heads = (int(number) for number in found.groups())
    return planning_shape(width, layers, heads) if min(width, layers, heads) > 0 else None
