"""Algorithm names to classes; `spec/algorithm.py` lists the same names (a test compares them)."""

from __future__ import annotations

from stepladder.engine.algo.grpo import Grpo
from stepladder.engine.seams import Algorithm
from stepladder.spec.run import RunSpec

ALGORITHMS = {"grpo": Grpo}


def build_algorithm(run: RunSpec) -> Algorithm:
    """Return the algorithm of a run."""
    return ALGORITHMS[run.algorithm.type](run.algorithm, run.kl)
