"""What every runner is: an artefact on its engine, called with numpy batches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import InputError

Array = NDArray[Any]


@dataclass(frozen=True)
class Input:
    """An input: its name, its shape with None for a size that may be any, and its dtype."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]


class Runner(ABC):
    """An artefact, loaded. ``run(batch)`` gives the output; a model with several outputs gives a tuple of them."""

    engine: str
    inputs: list[Input]

    def __call__(self, *batch: Array) -> Array | tuple[Array, ...]:
        """Run a batch of any size on the engine."""
        if len(batch) != len(self.inputs):
            names = ", ".join(repr(expected.name) for expected in self.inputs)
            raise InputError(f"the model takes {len(self.inputs)} inputs ({names}) and was given {len(batch)}.")
        outputs = self.infer(
            [_fitting(np.asarray(given), expected) for given, expected in zip(batch, self.inputs, strict=True)]
        )
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @abstractmethod
    def infer(self, batch: list[Array]) -> list[Array]:
        """The engine's own call, on inputs that fit."""


def _fitting(given: Array, expected: Input) -> Array:
    if given.dtype.kind not in "biuf" or not np.can_cast(given.dtype, expected.dtype, "same_kind"):
        raise InputError(f"input {expected.name!r}: takes {expected.dtype}, not {given.dtype}.")
    fits = given.ndim == len(expected.shape) and all(
        want is None or have == want for have, want in zip(given.shape, expected.shape, strict=True)
    )
    if not fits:
        want = ", ".join("any" if size is None else str(size) for size in expected.shape)
        raise InputError(f"input {expected.name!r}: shape {given.shape} does not fit the model's ({want}).")
    return np.ascontiguousarray(given, dtype=expected.dtype)
