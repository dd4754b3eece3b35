"""The loop between placing quantizers and freezing them. A user's own loop serves as well."""

from quaver.training.loop import evaluate, fit

__all__ = ["evaluate", "fit"]
