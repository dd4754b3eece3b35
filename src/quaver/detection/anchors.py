"""All the places where a detector can see an object, and how the numbers it gives for each become a box."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from quaver.models.yolov3 import BOXES, STRIDES

Anchors = tuple[tuple[tuple[float, float], ...], ...]
"""Width and height of three boxes for each of the three maps."""

# what the paper found among COCO's objects, in images of 416 pixels
PUBLISHED: Anchors = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)), ((116, 90), (156, 198), (373, 326)))
PUBLISHED_SIZE = 416
ALIKE = 0.3  # overlap of a box and an anchor, one laid on the other, from which they are alike
LARGEST = 8.0  # logarithm of a box's size over its anchor's: what lies beyond is noise, and would overflow


class AnchorGrid(NamedTuple):
    """A place is a cell of one of the maps, and one of its three anchors; everything in pixels.

    ``cells`` has left and top of its cell, ``strides`` the cell's width, ``sizes`` the anchor's width and height.
    """

    cells: Tensor
    strides: Tensor
    sizes: Tensor

    def to(self, device: torch.device) -> "AnchorGrid":
        """The same on another device."""
        return AnchorGrid(*(tensor.to(device) for tensor in self))

    def at(self, places: Tensor) -> "AnchorGrid":
        """Some of the places."""
        return AnchorGrid(*(tensor[places] for tensor in self))

    def assigned(self, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Which box belongs to which place, as the numbers of both, pair by pair.

        Of the nine places whose cell its middle is in, a box belongs to the one with the anchor most like it, as in the
        paper, and to all others with an anchor like it, too: a detector that starts from random weights learns much sooner.
        """
        middle, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
        around = ((middle[:, None] >= self.cells) & (middle[:, None] < self.cells + self.strides)).all(2)
        likeness = shape_overlap(size, self.sizes) * around
        belongs = around & (likeness >= likeness.amax(1, keepdim=True).clamp(max=ALIKE))
        box, place = belongs.nonzero(as_tuple=True)
        return box, place


def published_anchors(image_size: int) -> Anchors:
    """The paper's anchors, in pixels of images of this size."""
    factor = image_size / PUBLISHED_SIZE
    return tuple(tuple((width * factor, height * factor) for width, height in level) for level in PUBLISHED)


def anchors_of(numbers: Sequence[float]) -> Anchors:
    """Nine boxes from 18 numbers, width and height in turn: three for each map, the finest map's first.

    >>> anchors_of(range(18))[0]
    ((0, 1), (2, 3), (4, 5))
    """
    boxes = list(zip(numbers[::2], numbers[1::2], strict=True))
    return tuple(tuple(boxes[first : first + BOXES]) for first in range(0, len(boxes), BOXES))


@lru_cache
def anchor_grid(image_size: int, anchors: Anchors) -> AnchorGrid:
    """The places of images of this size: first map first, then anchor by anchor, row by row."""
    cells, strides, sizes = [], [], []
    for stride, own in zip(STRIDES, anchors, strict=True):
        count = image_size // stride
        rows, columns = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
        cells.append((torch.stack([columns, rows], 2).view(-1, 2) * float(stride)).repeat(BOXES, 1))
        strides.append(torch.full((BOXES * count**2, 1), float(stride)))
        sizes.append(torch.tensor(own, dtype=torch.float32).repeat_interleave(count**2, 0))
    return AnchorGrid(torch.cat(cells), torch.cat(strides), torch.cat(sizes))


def shape_overlap(sizes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of boxes of these widths and heights, were they in one place: n x m."""
    shared = torch.minimum(sizes[:, None], others).prod(2)
    return shared / (sizes.prod(1)[:, None] + others.prod(1) - shared)


def by_anchor(maps: tuple[Tensor, ...]) -> Tensor:
    """The maps' numbers for every place: N x places x (x, y, width, height, object, classes …), in float32."""
    flat = [_of_map(values.float()) for values in maps]
    return torch.cat(flat, 1)


def _of_map(values: Tensor) -> Tensor:
    images, channels, rows, columns = values.shape
    return values.reshape(images, BOXES, channels // BOXES, rows * columns).transpose(2, 3).flatten(1, 2)


def boxes_of(values: Tensor, where: AnchorGrid) -> Tensor:
    """The boxes that the numbers of each place stand for: ``sigmoid(x, y)`` in its cell, ``exp`` of the size in anchors."""
    middle = where.cells + values[..., :2].sigmoid() * where.strides
    half = where.sizes * values[..., 2:4].clamp(max=LARGEST).exp() / 2
    return torch.cat([middle - half, middle + half], -1)
