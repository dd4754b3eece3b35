"""A plain training loop, and a compiled step."""

from quaver.training.compiled import compile_training
from quaver.training.loop import evaluate, fit

__all__ = ["compile_training", "evaluate", "fit"]
