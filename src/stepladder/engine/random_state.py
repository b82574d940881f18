"""State of the process's global random generators, as tensors and JSON values.

Every draw of our own is seeded by purpose and step and needs none of this; it is kept for plug-ins
(tasks, rewards, models with dropout) that draw from the global generators.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

PYTHON, NUMPY, TORCH, CUDA = "python", "numpy", "torch", "cuda"


def capture() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the generators' state: (tensors, JSON values), both for `apply`."""
    version, words, gauss = random.getstate()
    tensors = {PYTHON: torch.tensor(words, dtype=torch.int64), TORCH: torch.get_rng_state()}
    values: dict[str, Any] = {PYTHON: {"version": version, "gauss": gauss}}
    state = np.random.get_state(legacy=False)
    # Someone may have put another bit generator in; its state has another form.
    if isinstance(state, dict) and state["bit_generator"] == "MT19937":
        key = np.asarray(state["state"]["key"], dtype=np.int64)
        tensors[NUMPY] = torch.from_numpy(key)
        values[NUMPY] = {
            "pos": int(state["state"]["pos"]),
            "has_gauss": int(state["has_gauss"]),
            "gauss": float(state["gauss"]),
        }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index, device in enumerate(torch.cuda.get_rng_state_all()):
            tensors[f"{CUDA}.{index}"] = device
    return tensors, values


def apply(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Take up a captured state; a generator that it lacks keeps its own."""
    if PYTHON in tensors:
        kept = values[PYTHON]
        random.setstate((kept["version"], tuple(tensors[PYTHON].tolist()), kept["gauss"]))
    if NUMPY in tensors:
        kept = values[NUMPY]
        key = tensors[NUMPY].numpy().astype(np.uint32)
        np.random.set_state(("MT19937", key, kept["pos"], kept["has_gauss"], kept["gauss"]))
    if TORCH in tensors:
        torch.set_rng_state(tensors[TORCH])
    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    for index in devices:
        if f"{CUDA}.{index}" in tensors:
            torch.cuda.set_rng_state(tensors[f"{CUDA}.{index}"], index)
