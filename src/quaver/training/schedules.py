"""How the learning rate falls: pure functions of the step, so that there is no state to save or lose."""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

from quaver.config.recipe import Phase

Strategy = Callable[["Course", float], float]


@dataclass(frozen=True)
class Course:
    """A phase's options with all lengths in epochs, whole or not: what a strategy needs to know."""

    phase: Phase
    length: float
    warmup: float
    falls_at: tuple[float, ...]

    @classmethod
    def of(cls, phase: Phase, steps_per_epoch: int) -> "Course":
        """Steps count where they are given, in place of epochs."""
        return cls(
            phase,
            length=phase.max_iters / steps_per_epoch if phase.max_iters else phase.num_epochs,
            warmup=phase.warmup_iters / steps_per_epoch if phase.warmup_iters else phase.warmup_epochs,
            falls_at=tuple(step / steps_per_epoch for step in phase.lr_step_iters) or phase.lr_step_epochs,
        )


def learning_rate(phase: Phase, step: int, steps_per_epoch: int, lr: float | None = None) -> float:
    """The learning rate of a step, counted from 0 over all epochs; ``lr`` is where it begins if not at the phase's own.

    >>> phase = Phase(num_epochs=4, lr=0.1)
    >>> [round(learning_rate(phase, step, 10), 4) for step in (0, 20, 40)]
    [0.1, 0.05, 0.0]
    """
    course, epochs = Course.of(phase, steps_per_epoch), step / steps_per_epoch
    lr = phase.lr if lr is None else lr
    if epochs < course.warmup:
        return lr * (step + 1) / (course.warmup * steps_per_epoch + 1)
    return lr * STRATEGIES[phase.lr_strategy](course, epochs)


def piecewise_decay(course: Course, epochs: float) -> float:
    """``lr_gamma`` times less at each of ``lr_step_epochs``, or of ``lr_step_iters``."""
    return course.phase.lr_gamma ** sum(epochs >= boundary for boundary in course.falls_at)


def cosine_decay(course: Course, epochs: float) -> float:
    """To zero along half a cosine; a warm-up before it is not part of the curve."""
    length = course.length - course.warmup
    share = min(1.0, (epochs - course.warmup) / length) if length > 0 else 1.0
    return 0.5 * (1 + cos(pi * share))


def exponential_decay(course: Course, epochs: float) -> float:
    """``lr_decay_rate`` times less with each epoch, smoothly."""
    return float(course.phase.lr_decay_rate**epochs)


def constant(course: Course, epochs: float) -> float:
    """As it was."""
    return 1.0


STRATEGIES: dict[str, Strategy] = {
    "piecewise_decay": piecewise_decay,
    "cosine_decay": cosine_decay,
    "exponential_decay": exponential_decay,
    "constant": constant,
}
