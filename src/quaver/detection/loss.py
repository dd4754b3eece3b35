"""YOLOv3's loss: an object is a few places' to find, and every other place should say that nothing is there."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.data import Target
from quaver.detection.anchors import AnchorGrid, Anchors, anchor_grid, boxes_of, by_anchor
from quaver.detection.boxes import area, overlap

CLOSE = 0.7  # overlap with an object from which a box is not told that nothing is there


class Objects(NamedTuple):
    """The objects of a whole batch, one after the other, each with the number of its image."""

    image: Tensor
    boxes: Tensor
    labels: Tensor


def yolo_loss(maps: tuple[Tensor, ...], targets: Sequence[Target], image_size: int, anchors: Anchors) -> Tensor:
    """The loss of a batch: objects' boxes and classes at their places, and at every place whether there is an object.

    It is the sum over places and objects, per image. All images are computed at once: one by one, an accelerator would
    spend its time on launching small kernels.
    """
    values = by_anchor(maps)
    where = anchor_grid(image_size, anchors).to(values.device)
    sought = listed(targets, values.device, difficult=False)
    number, place = where.assigned(sought.boxes)
    image, boxes, labels = (tensor[number] for tensor in sought)
    own = values[image, place]
    there, weight = torch.zeros_like(values[..., 4]), 1 - close(values, listed(targets, values.device), where)
    there[image, place] = weight[image, place] = 1
    something = F.binary_cross_entropy_with_logits(values[..., 4], there, weight, reduction="sum")
    return (something + box_loss(own, boxes, where.at(place), image_size) + class_loss(own, labels)) / len(targets)


def listed(targets: Sequence[Target], device: torch.device, *, difficult: bool = True) -> Objects:
    """The objects of all images, with or without the difficult ones."""
    kept = [difficult | ~target.difficult for target in targets]
    numbers = np.repeat(np.arange(len(targets)), [int(some.sum()) for some in kept])
    boxes, labels = (
        np.concatenate([getattr(target, name)[some] for target, some in zip(targets, kept, strict=True)])
        for name in ("boxes", "labels")
    )
    return Objects(*(torch.from_numpy(array).to(device) for array in (numbers, boxes, labels)))


@torch.no_grad()
def close(values: Tensor, objects: Objects, where: AnchorGrid) -> Tensor:
    """1 for each place of each image whose box has an object under it, 0 elsewhere."""
    seen = boxes_of(values, where)[objects.image]
    near = (overlap(seen, objects.boxes[:, None])[..., 0] > CLOSE).to(values.dtype)
    return torch.zeros_like(values[..., 4]).index_add_(0, objects.image, near).clamp(max=1)


def box_loss(values: Tensor, boxes: Tensor, where: AnchorGrid, image_size: int) -> Tensor:
    """How far a place's numbers are from the object's middle and size; small objects weigh up to twice as much."""
    middle, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    in_cell = ((middle - where.cells) / where.strides).clamp(0, 1)
    in_anchors = (size.clamp(min=1) / where.sizes).log()
    distance = F.binary_cross_entropy_with_logits(values[:, :2], in_cell, reduction="none")
    distance = distance + (values[:, 2:4] - in_anchors).abs()
    weight = 2 - area(boxes) / image_size**2
    return (distance.sum(1) * weight).sum()


def class_loss(values: Tensor, labels: Tensor) -> Tensor:
    """Each class on its own: yes for the object's, no for the others."""
    classes = values[:, 5:]
    wanted = F.one_hot(labels, classes.shape[1]).to(classes.dtype)
    return F.binary_cross_entropy_with_logits(classes, wanted, reduction="sum")
