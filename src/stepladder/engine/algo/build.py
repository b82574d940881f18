"""Algorithm names to classes; `spec/algorithm.py` lists the same names (a test compares them)."""

from __future__ import annotations

from stepladder.engine.algo.group import Group
from stepladder.engine.algo.ppo import Ppo
from stepladder.engine.algo.reinforce import Reinforce
from stepladder.engine.seams import Algorithm
from stepladder.spec.run import RunSpec

ALGORITHMS: dict[str, type[Group] | type[Reinforce] | type[Ppo]] = {
    "grpo": Group,
    "dr_grpo": Group,
    "dapo": Group,
    "gspo": Group,
    "cispo": Group,
    "rloo": Group,
    "reinforce": Reinforce,
    "ppo": Ppo,
}


def build_algorithm(run: RunSpec) -> Algorithm:
    """Return the algorithm of a run."""
    return ALGORITHMS[run.algorithm.type](run)
