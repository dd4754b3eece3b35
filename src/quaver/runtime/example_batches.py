"""Batches for a loaded artefact: what sizes it takes, and random ones to run it on."""

from typing import Any

import numpy as np

from quaver.errors import InputError
from quaver.runtime.runner import Array, Input

IMAGES = 4  # dimensions of a batch of them


def fixed_batch(inputs: list[Input]) -> int | None:
    """The batch size that a model was exported for, or None where any will do."""
    sizes = [port.shape[0] for port in inputs if port.shape]
    return None if None in sizes else next((size for size in sizes if size is not None), 1)


def random_batch(inputs: list[Input], batch: int, seed: int = 0) -> list[Array]:
    """Inputs for a model: random images of the shapes it takes, of bytes if it takes these, and zeros for other integers."""
    generator = np.random.default_rng(seed)
    return [_values(port, batch, generator) for port in inputs]


def _values(port: Input, batch: int, generator: np.random.Generator) -> Any:
    rest = port.shape[1:]
    if None in rest:
        sizes = ", ".join("any" if size is None else str(size) for size in port.shape)
        raise InputError(
            f"input {port.name!r}: takes ({sizes}); only the batch can be chosen here. Export the model for one image size."
        )
    shape = [batch if size is None else size for size in port.shape]
    if port.dtype.kind == "f":
        return generator.standard_normal(shape, np.float32).astype(port.dtype)
    if port.dtype == np.uint8 and len(shape) == IMAGES:
        return generator.integers(0, 256, shape, np.uint8)
    return np.zeros(shape, port.dtype)
