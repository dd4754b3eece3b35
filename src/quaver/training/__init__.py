"""The trainer, and what a loop of one's own can use of it."""

from quaver.training.across_ranks import across_ranks
from quaver.training.compiled import compile_training

__all__ = ["across_ranks", "compile_training"]
