"""What a batch without images gives."""

from collections.abc import Iterable


def empty_shape(shape_of_one: Iterable[int], shape_of_two: Iterable[int]) -> tuple[int, ...]:
    """The shape of an output for no image, from its shapes for one and for two: sizes grow evenly with the batch.

    >>> empty_shape((8, 1, 100), (8, 2, 200))
    (8, 0, 0)
    """
    return tuple(2 * with_one - with_two for with_one, with_two in zip(shape_of_one, shape_of_two, strict=True))
