"""A batch of any size, for files that take one image at a time."""

from collections.abc import Callable

import numpy as np

from quaver.runtime.runner import Array, Input


def in_pieces(run: Callable[[list[Array]], list[Array]], inputs: list[Input], batch: list[Array]) -> list[Array]:
    """The batch cut into single images, and the results put together again; as it is where no input's batch is free."""
    free = [port.shape[:1] == (None,) for port in inputs]
    if not any(free):
        return run(batch)
    pieces = [
        run([array[index : index + 1] if is_free else array for array, is_free in zip(batch, free, strict=True)])
        for index in range(len(batch[free.index(True)]))
    ]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
