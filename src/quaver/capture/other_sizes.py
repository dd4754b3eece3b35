"""Which other sizes a trace holds for: what it took for granted of the sizes it saw, asked of others."""

from collections.abc import Iterable
from math import lcm
from typing import Any

import torch
from torch import Tensor

from quaver.program.signature import IMAGES, Side

MULTIPLES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 256)
"""By what sides are tried to change: halvings, patches of 14, and windows of 7 behind halvings."""
FARTHER = (1, 2, 3, 5, 7, 11, 16, 31)
"""How many multiples more a side is tried with."""


def has_sides(tensor: Tensor) -> bool:
    """Whether it is a batch of images, with a height and a width."""
    return tensor.dim() == IMAGES and tensor.is_floating_point()


def common_sides(traces: Iterable[tuple[Side, ...]]) -> tuple[Side, ...]:
    """What all of several traces of one input take."""
    return tuple(
        Side(same[0].captured, lcm(*(side.multiple for side in same)), max(side.least for side in same))
        for same in zip(*traces, strict=True)
    )


class OtherSizes:
    """What a trace with these inputs (as its graph holds them, with symbols for sizes) allows."""

    def __init__(self, inputs: list[Any]) -> None:
        self.inputs = inputs
        symbols = [size for value in inputs for size in value.shape if _is_symbol(size)]
        self.seen = {size.node.expr: int(size.node.hint) for size in symbols}
        self.guards = [guard.expr for guard in symbols[0].node.shape_env.guards] if symbols else []

    def free_batches(self) -> list[bool]:
        """Which inputs may have a batch of any size, odd ones among them; all of them the same."""
        batches = [value.shape[0] if value.dim() else 0 for value in self.inputs]
        holds = all(self._hold(batches, by=lambda _, size=size: size) for size in (3, 5, 7))
        return [holds and _is_symbol(batch) for batch in batches]

    def sides(self) -> list[tuple[Side, ...]]:
        """Height and width of each input that is an image; none where they can only be as they were."""
        sides = [value.shape[-2:] if has_sides(value) else () for value in self.inputs]
        both = [size for image_sides in sides for size in image_sides]
        return [tuple(filter(None, (self._side(size, both) for size in image_sides))) for image_sides in sides]

    def _side(self, size: Any, both: list[Any]) -> Side | None:
        """One that may change by itself, or the other with it."""
        if not _is_symbol(size):
            return None
        captured = self.seen[size.node.expr]

        def fits(more: int) -> bool:
            return all(self._hold(changed, by=lambda seen: seen + more) for changed in ([size], both))

        for multiple in MULTIPLES:
            if all(fits(multiple * times) for times in FARTHER):
                least = captured
                while least > multiple and fits(least - multiple - captured):
                    least -= multiple
                return Side(captured, multiple, least)
        return None

    def _hold(self, changed: list[Any], by: Any) -> bool:
        """Whether all that was taken for granted is true with these sizes as others."""
        other = {size.node.expr: by(self.seen[size.node.expr]) for size in changed if _is_symbol(size)}
        return all(guard.subs(self.seen | other) != False for guard in self.guards)  # noqa: E712


def _is_symbol(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None
