"""Deterministic samples: some values of a tensor, some images of a data set."""

from typing import Any

import torch
from torch import Tensor

VALUES = 1 << 16
"""Values of a tensor that are looked at closely, per batch; of the others only the largest and smallest matter."""


def some_values(x: Tensor, batch: int, limit: int = VALUES) -> Tensor:
    """At most about ``limit`` values of ``x`` as a float32 row of its own, evenly spread, others for another batch.

    Every k-th value, where k divides the length of no axis: else they would all come from a few rows or channels.
    """
    row = _row(x.detach())
    if row.numel() <= limit:
        return row.float().clone()
    stride = -(-row.numel() // limit)
    while any(stride > 1 and size % factor == 0 for size in x.shape for factor in _factors(stride)):
        stride += 1
    return row[(batch * 7919) % stride :: stride].float().contiguous()


def _row(x: Tensor) -> Tensor:
    """The values of a tensor in a row; in the order of memory where that saves a copy."""
    if not x.is_contiguous() and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        x = x.permute(0, 2, 3, 1)
    return x.reshape(-1)


def _factors(number: int) -> set[int]:
    """The primes that divide a number."""
    factors, factor = set(), 2
    while factor * factor <= number:
        while number % factor == 0:
            factors.add(factor)
            number //= factor
        factor += 1
    return factors | ({number} if number > 1 else set())


class Reservoir:
    """At most ``limit`` images with their labels, each image of the data as likely to be among them as any other.

    However many are offered, no more than ``limit`` are kept (Vitter's algorithm R). Equal data gives equal images. Those
    with NaN or Inf are not taken, and counted.
    """

    def __init__(self, limit: int, seed: int = 0) -> None:
        self.limit = limit
        self.seen = self.not_finite = 0
        self.kept: list[tuple[list[Tensor], Any]] = []
        self.generator = torch.Generator().manual_seed(seed)

    def offer(self, inputs: list[Tensor], labels: Tensor | None) -> None:
        """Take some images of a batch, replacing earlier ones; an image is a row of every input."""
        if not self.limit:
            return
        finite = torch.stack([torch.isfinite(tensor)[..., None].flatten(1).all(1) for tensor in inputs]).all(0).tolist()
        for index in range(len(finite)):
            if not finite[index]:
                self.not_finite += 1
                continue
            place = len(self.kept)
            if place == self.limit:
                place = int(torch.randint(self.seen + 1, (), generator=self.generator))
            self.seen += 1
            if place >= self.limit:
                continue
            pair = ([tensor[index].clone() for tensor in inputs], None if labels is None else labels[index].clone())
            self.kept[place : place + 1] = [pair]

    def batches(self, size: int) -> list[tuple[list[Tensor], Tensor | None]]:
        """What was kept, in batches."""
        parts = [self.kept[first : first + size] for first in range(0, len(self.kept), size)]
        return [
            (
                [torch.stack(rows) for rows in zip(*(image for image, _ in part), strict=True)],
                None if any(label is None for _, label in part) else torch.stack([label for _, label in part]),
            )
            for part in parts
        ]
