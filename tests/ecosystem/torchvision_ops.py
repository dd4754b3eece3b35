"""Let torchvision be imported where its compiled ops do not load (built for another torch): ``nms`` in plain torch."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor


def provide() -> None:
    """Define the ops that importing torchvision asks for, unless they are there."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(Path(spec.origin).with_name("_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.library.impl("torchvision::nms", "cpu", nms)
        extension = import_module("torchvision.extension")
        extension._has_ops = lambda: True  # which torchvision.ops.nms asks before it calls the op


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes, the best first, that overlap no better one by more than the threshold."""
    areas = (dets[:, 2:] - dets[:, :2]).prod(1)
    kept, waiting = [], scores.argsort(descending=True)
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        sides = torch.minimum(dets[best, 2:], dets[waiting, 2:]) - torch.maximum(dets[best, :2], dets[waiting, :2])
        shared = sides.clamp(min=0).prod(1)
        waiting = waiting[shared / (areas[best] + areas[waiting] - shared) <= iou_threshold]
    return torch.stack(kept) if kept else scores.new_zeros(0, dtype=torch.long)


provide()
