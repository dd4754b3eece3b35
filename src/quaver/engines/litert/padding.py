"""PyTorch's padding in LiteRT's words: it knows none (VALID), as much as keeps the size (SAME), or an op of its own."""

from typing import Any, NamedTuple

import numpy as np
from torch import fx

from quaver.engines.litert.flatbuffer import FileTensor
from quaver.engines.litert.translator import Translator, Value
from quaver.graph.nodes import argument
from quaver.graph.patterns import two

SAME, VALID = 0, 1


class Window(NamedTuple):
    """A window that goes over images: for height and width, its size, step and dilation, and the padding on both sides."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    before: list[int]
    after: list[int]
    sizes: list[int]

    @classmethod
    def along(cls, node: fx.Node, width: int, length: int) -> "Window":
        """The window of a convolution along a line, one pixel high."""
        (before,), (after,) = _padding(node, [width])
        stride, dilation = (_numbers(argument(node, name), 1)[0] for name in ("stride", "dilation"))
        return cls([1, width], [1, stride], [1, dilation], [0, before], [0, after], [1, length])

    def reach(self, axis: int) -> int:
        """How many pixels the window lies over."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def steps(self, axis: int) -> int:
        """How many places the window takes."""
        padded = self.sizes[axis] + self.before[axis] + self.after[axis]
        return (padded - self.reach(axis)) // self.stride[axis] + 1

    def missing(self, axis: int, count: int) -> int:
        """How much padding behind the images the window reaches into, for so many results."""
        reached = (count - 1) * self.stride[axis] + self.reach(axis)
        return max(reached - self.sizes[axis] - self.before[axis], 0)

    @property
    def sides(self) -> list[tuple[int, int]]:
        """The padding before and behind, of height and of width."""
        return list(zip(self.before, self.after, strict=True))

    def pool_options(self) -> dict[str, int]:
        """The options of a pool's op."""
        names = ("filterHeight", "filterWidth", "strideH", "strideW")
        return dict(zip(names, (*self.kernel, *self.stride), strict=True))

    def layer_options(self, padding: int) -> dict[str, int]:
        """The options of a convolution's op."""
        names = ("strideH", "strideW", "dilationHFactor", "dilationWFactor")
        return dict(zip(names, (*self.stride, *self.dilation), strict=True)) | {"padding": padding}

    def is_same(self) -> bool:
        """Whether SAME stands for this padding: as many results, and as much in front."""
        return any((*self.before, *self.after)) and all(self._is_same(axis) for axis in range(2))

    def _is_same(self, axis: int) -> bool:
        count = -(-self.sizes[axis] // self.stride[axis])
        total = max((count - 1) * self.stride[axis] + self.reach(axis) - self.sizes[axis], 0)
        return count == self.steps(axis) and total // 2 == self.before[axis]


def window_of(node: fx.Node, kernel: Any, sizes: Any) -> Window:
    """The window of a convolution or a pool of images."""
    before, after = _padding(node, kernel)
    stride = two(argument(node, "stride") or list(kernel))
    dilation = two(argument(node, "dilation") or 1)
    return Window(list(kernel), stride, dilation, before, after, [int(size) for size in sizes])


def _padding(node: fx.Node, kernel: Any) -> tuple[list[int], list[int]]:
    given = argument(node, "padding")
    if given == "same":
        dilation = _numbers(argument(node, "dilation"), len(kernel))
        total = [(width - 1) * step for width, step in zip(kernel, dilation, strict=True)]
        return [width // 2 for width in total], [width - width // 2 for width in total]
    numbers = _numbers(0 if given == "valid" else given, len(kernel))
    return numbers, numbers


def _numbers(given: Any, count: int) -> list[int]:
    values = [given] if isinstance(given, int) else list(given)
    return values * count if len(values) == 1 else values


def padded(t: Translator, x: Value, window: Window) -> tuple[Value, int]:
    """Images (channels last) with zeros around them where SAME has not the padding, and the word for the rest of it."""
    return (x, SAME) if window.is_same() else (around(t, x, window.sides), VALID)


def around(t: Translator, x: Value, widths: list[tuple[int, int]], number: float | None = None) -> Value:
    """Images (channels last) with zeros around them, or with another number (on a grid, an integer of it)."""
    if not any(map(any, widths)):
        return x
    sides = [(0, 0), *widths, (0, 0)]
    shape = tuple(have + sum(side) for have, side in zip(x.stored.shape, sides, strict=True))
    like, name = Value(FileTensor(-1, shape, x.stored.dtype), x.order), f"{t.name_of(x)}.padded"
    if number is None:
        return t.emit("PAD", [x, t.integers(sides)], like, name, x.grid)
    filling = t.constant(np.array([number], x.stored.dtype), x.grid)
    return t.emit("PADV2", [x, t.integers(sides), filling], like, name, x.grid)
