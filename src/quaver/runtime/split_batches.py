"""A batch of any size, for files that take one image at a time."""

from collections.abc import Callable, Sequence

import numpy as np

from quaver.runtime.runner import Array, Input


def in_pieces(
    run: Callable[[list[Array]], list[Array]], inputs: list[Input], batch: list[Array], further: Sequence[int | None] = ()
) -> list[Array]:
    """The batch cut into single images, and the results put together again; as it is where no input's batch is free.

    ``further`` are the dimensions in which images lie in the last results, None where these are the same for all images;
    in those before, the first.
    """
    free = [port.shape[:1] == (None,) for port in inputs]
    if not any(free):
        return run(batch)
    pieces = [
        run([array[index : index + 1] if is_free else array for array, is_free in zip(batch, free, strict=True)])
        for index in range(len(batch[free.index(True)]))
    ]
    results = list(zip(*pieces, strict=True))
    axes = [*[0] * (len(results) - len(further)), *further]
    return [parts[0] if axis is None else np.concatenate(parts, axis) for parts, axis in zip(results, axes, strict=True)]
