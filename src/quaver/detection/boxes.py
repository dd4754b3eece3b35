"""Boxes, as left, top, right and bottom: how much two overlap, and which of many to keep."""

import torch
from torch import Tensor


def area(boxes: Tensor) -> Tensor:
    """Pixels in each box; none in one that ends before it begins."""
    size = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    return size[..., 0] * size[..., 1]


def overlap(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of each of ``boxes`` (… x n x 4) with each of ``others`` (… x m x 4): … x n x m.

    >>> overlap(torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0, 2.0], [2.0, 2.0, 3.0, 3.0]]))
    tensor([[0.3333, 0.0000]])
    """
    boxes, others = boxes[..., :, None, :], others[..., None, :, :]
    low, high = torch.maximum(boxes[..., :2], others[..., :2]), torch.minimum(boxes[..., 2:], others[..., 2:])
    shared = area(torch.cat([low, high], -1))
    return shared / (area(boxes) + area(others) - shared).clamp(min=1e-9)


def suppress(boxes: Tensor, scores: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Non-maximum suppression: which boxes to keep, the best first.

    Of boxes of one class that overlap by more than ``threshold``, the one with the highest score stays; of equal scores, the
    one that comes first.
    """
    order = scores.argsort(descending=True, stable=True)
    boxes, labels = boxes[order], labels[order]
    rivals = (overlap(boxes, boxes) > threshold) & (labels[:, None] == labels)
    stays = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    for best in range(len(order)):
        if stays[best]:
            stays[best + 1 :] &= ~rivals[best, best + 1 :]
    return order[stays]
