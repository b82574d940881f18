"""Stepladder: know how an RL post-training run will scale before paying for it."""

__version__ = "0.1.0"
__all__ = ["__version__"]
