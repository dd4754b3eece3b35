"""The trainer, and what a loop of one's own can use of it."""

from typing import TYPE_CHECKING

from quaver.on_demand import on_demand

if TYPE_CHECKING:
    from quaver.training.across_ranks import across_ranks
    from quaver.training.compiled import compile_training
    from quaver.training.recorded_step import RecordedStep

on_demand(__name__, {"across_ranks": "across_ranks", "compiled": "compile_training", "recorded_step": "RecordedStep"})

__all__ = ["RecordedStep", "across_ranks", "compile_training"]
