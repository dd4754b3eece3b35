"""Sums of rows in the order in which OpenVINO's kernels add them up: side by side, as the lanes of an AVX-512 register do.

Any other order has other last bits, and now and then (some integers of a hundred thousand) the rounding behind shows it.
With AVX2 there are 8 lanes, and other last bits: the simulation has those of AVX-512, on every machine.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from quaver.quantizers.eager_calls import is_eager

LANES = 16
BLOCK = 1 << 16
"""Values computed at once, for each of torch's threads: what is computed on the way stays in the cache."""


def by_rows(kernel: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a kernel makes of the rows of a tensor, of some at a time."""
    rows = x.reshape(-1, x.shape[-1]).float()
    if not (rows.is_cpu and is_eager(rows)) or (torch.is_grad_enabled() and rows.requires_grad):
        return kernel(rows).reshape(x.shape).to(x.dtype)
    at_once = max(BLOCK * torch.get_num_threads() // rows.shape[1], 1)
    result = torch.empty_like(rows)
    for given, computed in zip(torch.split(rows, at_once), torch.split(result, at_once), strict=True):
        computed.copy_(kernel(given))
    return result.reshape(x.shape).to(x.dtype)


def lanes_for(rows: Tensor) -> Tensor:
    """Zeros to add rows up in."""
    return rows.new_zeros(len(rows), LANES)


def sum_of_halves(lanes: Tensor) -> Tensor:
    """The sum of the lanes, as a column: of both halves, of the halves of that, and so on."""
    while lanes.shape[1] > 1:
        first, second = lanes.chunk(2, 1)
        lanes = first + second
    return lanes


def sum_of_quarters(lanes: Tensor) -> Tensor:
    """The sum of the lanes, as a column: of four quarters, first and second and third and fourth; then of their lanes."""
    while lanes.shape[1] > 1:
        first, second, third, fourth = lanes.chunk(4, 1)
        lanes = (first + second) + (third + fourth)
    return lanes
