"""YOLOv3's loss: every object is one place's to find, and every other place should say that nothing is there."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.data import Target
from quaver.detection.anchors import AnchorGrid, Anchors, anchor_grid, boxes_of, by_anchor
from quaver.detection.boxes import area, overlap

CLOSE = 0.7  # overlap with an object from which a box is not told that nothing is there


def yolo_loss(maps: tuple[Tensor, ...], targets: Sequence[Target], image_size: int, anchors: Anchors) -> Tensor:
    """The loss of a batch: its sum over places and objects, per image."""
    values = by_anchor(maps)
    where = anchor_grid(image_size, anchors).to(values.device)
    losses = [image_loss(own, target, where, image_size) for own, target in zip(values, targets, strict=True)]
    return torch.stack(losses).mean()


def image_loss(values: Tensor, target: Target, where: AnchorGrid, image_size: int) -> Tensor:
    """Objects' boxes and classes at their places, and at every place whether there is an object."""
    boxes = torch.from_numpy(target.boxes).to(values.device)
    sought = ~torch.from_numpy(target.difficult).to(values.device)
    labels = torch.from_numpy(target.labels).to(values.device)[sought]
    there, weight = torch.zeros_like(values[:, 4]), torch.ones_like(values[:, 4])
    if not len(boxes):
        return F.binary_cross_entropy_with_logits(values[:, 4], there, reduction="sum")
    weight[overlap(boxes_of(values.detach(), where), boxes).amax(1) > CLOSE] = 0
    found = where.assigned(boxes[sought])
    there[found], weight[found] = 1, 1
    something = F.binary_cross_entropy_with_logits(values[:, 4], there, weight, reduction="sum")
    own = AnchorGrid(*(tensor[found] for tensor in where))
    return something + box_loss(values[found], boxes[sought], own, image_size) + class_loss(values[found], labels)


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
