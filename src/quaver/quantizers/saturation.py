"""Keep weights from overflowing the 16 bits that older x86 processors add two products in.

Without VNNI, ``u8 · s8`` is multiplied with an instruction that adds the products of two neighbouring inputs in 16 bits, and
saturates: 255·127 + 255·127 does not fit. Two products of opposite sign always fit, and so do two of one sign with
``|w1| + |w2| ≤ 128``, for 255·128 < 2^15. Only pairs beyond that are changed: some 2 % in trained networks.

Neighbours are the channels (2j, 2j+1) of one filter tap. Where the channels are odd in number, kernels differ: some leave
the last one alone, others lay the whole filter out in a row, channels inside taps, and the last channel of a tap meets the
first of the next (oneDNN where it has no kernel of its own, as for groups of three; ONNX Runtime always).
"""

import torch
from torch import Tensor

LARGEST_SUM = 128


def without_overflow(integers: Tensor, axis: int) -> Tensor:
    """``integers`` of a weight with every pair of neighbours along ``axis`` bounded to |w1| + |w2| ≤ 128 if of one sign.

    What is too much is taken from both alike (the nearest pair that fits), the odd one from the larger. Where ``axis`` is
    odd, neighbours in the filter's row are bounded as well; the first of the other axes counts the filters.

    >>> without_overflow(torch.tensor([127.0, 127.0, 127.0, -127.0, 100.0, 31.0, 127.0]), 0)
    tensor([  64.,   64.,  127., -127.,   98.,   30.,  127.])
    """
    bounded = _bounded(integers, axis)
    if integers.shape[axis] % 2 == 0 or integers.dim() < 3:
        return bounded
    rows = bounded.movedim(axis, -1)  # filters, taps, channels
    return _bounded(rows.flatten(1), 1).reshape(rows.shape).movedim(-1, axis)


def _bounded(integers: Tensor, axis: int) -> Tensor:
    """Pairs (2j, 2j+1) along ``axis``, bounded."""
    axis %= integers.dim()
    count = integers.shape[axis] // 2
    paired = integers.narrow(axis, 0, 2 * count)
    first, second = paired.reshape(*paired.shape[:axis], count, 2, *paired.shape[axis + 1 :]).unbind(axis + 1)
    size, other = first.abs(), second.abs()
    excess = torch.where(first * second > 0, (size + other - LARGEST_SUM).clamp_min(0), 0.0)
    half = (excess / 2).floor()
    cut = torch.where(size >= other, excess - half, half)
    pair = [first - torch.sign(first) * cut, second - torch.sign(second) * (excess - cut)]
    bounded = torch.stack(pair, axis + 1).flatten(axis, axis + 1)
    rest = integers.narrow(axis, 2 * count, integers.shape[axis] - 2 * count)
    return torch.cat([bounded, rest], axis)
