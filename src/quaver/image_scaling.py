"""Scaling images of bytes so that every engine gives the same: between four neighbours, in steps of 1/128.

With weights of 7 bits, products and sums of bytes have 23 bits at most and are exact in float32, in whatever order an engine
computes them, fused or not. What comes out is rounded to bytes, ties to even, as image libraries do.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEPS = 128


@dataclass(frozen=True)
class Neighbours:
    """For each row (or column) of the result, the two of the source that it lies between, and how near the second is."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    share: NDArray[np.float32]


def neighbours(source: int, result: int) -> Neighbours:
    """Where rows of the result lie in the source, centres on centres (OpenCV's ``INTER_LINEAR``)."""
    places = ((np.arange(result) + 0.5) * (source / result) - 0.5).clip(0, source - 1)
    steps = np.rint(places * STEPS).astype(np.int64)
    first = steps // STEPS
    return Neighbours(first, np.minimum(first + 1, source - 1), ((steps % STEPS) / STEPS).astype(np.float32))


def scaled(images_nhwc: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Images with another height and width.

    >>> scaled(np.array([[0, 100]], np.uint8).reshape(1, 1, 2, 1), (1, 4)).ravel().tolist()
    [0, 25, 75, 100]
    """
    values = images_nhwc.astype(np.float32)
    for axis, result in zip((1, 2), size, strict=True):
        near = neighbours(values.shape[axis], result)
        first, second = values.take(near.first, axis), values.take(near.second, axis)
        values = first + (second - first) * near.share.reshape(-1, *[1] * (3 - axis))
    return np.rint(values).astype(np.uint8)
