"""How the learning rate falls: pure functions of the step, so that there is no state to save or lose."""

from collections.abc import Callable
from math import cos, pi

from quaver.config.recipe import Phase

Strategy = Callable[[Phase, float], float]


def learning_rate(phase: Phase, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0 over all epochs.

    >>> phase = Phase(num_epochs=4, lr=0.1)
    >>> [round(learning_rate(phase, step, 10), 4) for step in (0, 20, 40)]
    [0.1, 0.05, 0.0]
    """
    epochs = step / steps_per_epoch
    if epochs < phase.warmup_epochs:
        return phase.lr * (step + 1) / (phase.warmup_epochs * steps_per_epoch + 1)
    return phase.lr * STRATEGIES[phase.lr_strategy](phase, epochs)


def piecewise_decay(phase: Phase, epochs: float) -> float:
    """``lr_gamma`` times less at each of ``lr_step_epochs``."""
    return phase.lr_gamma ** sum(epochs >= boundary for boundary in phase.lr_step_epochs)


def cosine_decay(phase: Phase, epochs: float) -> float:
    """To zero along half a cosine; a warm-up before it is not part of the curve."""
    length = phase.num_epochs - phase.warmup_epochs
    share = min(1.0, (epochs - phase.warmup_epochs) / length) if length > 0 else 1.0
    return 0.5 * (1 + cos(pi * share))


def exponential_decay(phase: Phase, epochs: float) -> float:
    """``lr_decay_rate`` times less with each epoch, smoothly."""
    return float(phase.lr_decay_rate**epochs)


def constant(phase: Phase, epochs: float) -> float:
    """As it was."""
    return 1.0


STRATEGIES: dict[str, Strategy] = {
    "piecewise_decay": piecewise_decay,
    "cosine_decay": cosine_decay,
    "exponential_decay": exponential_decay,
    "constant": constant,
}
