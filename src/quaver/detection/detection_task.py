"""Detection as a task: what to minimise, and how good a model is, whatever computes it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from quaver.data import Loader, Target
from quaver.detection.anchors import Anchors, published_anchors
from quaver.detection.average_precision import average_precision
from quaver.detection.detect import Found, detect
from quaver.detection.loss import yolo_loss

Batches = Iterable[tuple[Tensor, Sequence[Target]]]
Maps = tuple[Tensor, ...]


@dataclass(frozen=True)
class Detection:
    """Finding objects of ``classes`` kinds in images of ``image_size`` pixels, with a YOLOv3.

    ``anchors`` are width and height in pixels of three boxes for each of its maps; the paper's, scaled to the images,
    unless given.
    """

    classes: int
    image_size: int
    anchors: Anchors = ()
    metric: ClassVar[str] = "mAP50"
    """The figure of `evaluate` that says which of two models is better; higher is."""

    @property
    def _anchors(self) -> Anchors:
        return self.anchors or published_anchors(self.image_size)

    def loss(self, output: Maps, target: Sequence[Target]) -> Tensor:
        """What training minimises."""
        return yolo_loss(output, target, self.image_size, self._anchors)

    def find(self, model: Callable[..., Any], images: Tensor) -> list[Found]:
        """The objects that a model sees in images: a module, a program of any stage, or an artefact on its engine."""
        return detect(_maps(model, images), self.image_size, self._anchors)

    def evaluate(self, model: Callable[..., Any], batches: Loader | Batches) -> dict[str, float]:
        """Mean average precision over all images, as ``mAP`` and ``mAP50``; a module is left in the mode it was in.

        ``batches`` are images and targets, or a loader of them. Where the loader shares its images out to several
        processes, each of them gets the figures of all.
        """
        was_training = isinstance(model, nn.Module) and model.training
        if isinstance(model, nn.Module):
            model.eval()
        detections: list[Found] = []
        targets: list[Target] = []
        for images, target in batches.epoch(0) if isinstance(batches, Loader) else batches:
            detections += self.find(model, images)
            targets += target
        if was_training:
            model.train()  # type: ignore[attr-defined]
        if isinstance(batches, Loader) and batches.world > 1:
            detections, targets = (_of_all_ranks(own, batches.world) for own in (detections, targets))
        return average_precision(detections, targets, self.classes)


@torch.no_grad()
def _maps(model: Callable[..., Any], images: Tensor) -> Maps:
    if not isinstance(model, nn.Module):
        return tuple(torch.from_numpy(np.asarray(values)) for values in model(images.cpu().numpy()))
    parameter = next(model.parameters(), None)
    maps: Maps = model(images if parameter is None else images.to(parameter.device))
    return maps


def _of_all_ranks(own: list[Any], world: int) -> list[Any]:
    parts: list[list[Any]] = [[] for _ in range(world)]
    torch.distributed.all_gather_object(parts, own)
    return [item for part in parts for item in part]
