"""``detection.fitted_anchors``: nine boxes that the objects of a data set are like."""

import torch
from torch import Tensor

from quaver.data import ImageData
from quaver.detection.anchors import Anchors, anchors_of, shape_overlap
from quaver.errors import DataError
from quaver.models.yolov3 import BOXES, STRIDES

ROUNDS = 100  # more than it ever took to settle


def fitted_anchors(data: ImageData, *, images: int = 2000) -> Anchors:
    """Anchors for a detector of such data, in its pixels, from the objects of at most so many of its images.

    k-means with overlap in place of distance, as in YOLOv2 (Redmon and Farhadi, 2016); it begins evenly from the smallest
    object to the largest, so that the result is always the same.
    """
    numbers = torch.linspace(0, len(data) - 1, min(images, len(data))).long().tolist()
    boxes = torch.cat([torch.from_numpy(data[number][1].boxes) for number in numbers])
    sizes = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1)
    if not len(sizes):
        raise DataError(f"fitted_anchors: there is no object in the {len(numbers)} images that were looked at.")
    return anchors_of(_by_area(_centres(sizes)).flatten().tolist())


def _centres(sizes: Tensor) -> Tensor:
    count = BOXES * len(STRIDES)
    centres = _by_area(sizes)[torch.linspace(0, len(sizes) - 1, count).long()]
    for _ in range(ROUNDS):
        nearest = shape_overlap(sizes, centres).argmax(1)
        groups = [sizes[nearest == number] for number in range(count)]
        moved = torch.stack([group.mean(0) if len(group) else old for group, old in zip(groups, centres, strict=True)])
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres


def _by_area(sizes: Tensor) -> Tensor:
    return sizes[sizes.prod(1).argsort(stable=True)]
