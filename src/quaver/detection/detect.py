"""From the maps of a detector to the objects it sees."""

from typing import NamedTuple

import torch
from torch import Tensor

from quaver.detection.anchors import Anchors, anchor_grid, boxes_of, by_anchor
from quaver.detection.boxes import suppress

CANDIDATES = 400  # boxes per image that suppression looks at, the best ones
KEPT = 100


class Found(NamedTuple):
    """The objects seen in an image, the surest first."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


@torch.no_grad()
def detect(
    maps: tuple[Tensor, ...],
    image_size: int,
    anchors: Anchors,
    *,
    least_score: float = 0.01,
    most_overlap: float = 0.45,
) -> list[Found]:
    """The objects in each image of a batch, on the CPU: boxes with a score of at least ``least_score``, after suppression.

    A score is the probability of an object times that of its class. Boxes of one class that overlap by more than
    ``most_overlap`` are taken for the same object.
    """
    values = by_anchor(maps)
    where = anchor_grid(image_size, anchors).to(values.device)
    boxes = boxes_of(values, where).clamp(0, image_size)
    scores = values[..., 4:5].sigmoid() * values[..., 5:].sigmoid()
    return [_best(*image, least_score, most_overlap) for image in zip(boxes, scores, strict=True)]


def _best(boxes: Tensor, scores: Tensor, least_score: float, most_overlap: float) -> Found:
    place, label = (scores >= least_score).nonzero(as_tuple=True)
    best = scores[place, label].argsort(descending=True, stable=True)[:CANDIDATES]
    place, label = place[best], label[best]
    # one after the other, which an accelerator is slow at
    boxes, scores, label = boxes[place].cpu(), scores[place, label].cpu(), label.cpu()
    kept = suppress(boxes, scores, label, most_overlap)[:KEPT]
    return Found(boxes[kept], scores[kept], label[kept])
