"""Keep weights from overflowing the 16 bits that older x86 processors add two products in.

Without VNNI, ``u8 · s8`` is multiplied with an instruction that adds the products of two neighbouring input channels in 16
bits, and saturates: 255·127 + 255·127 does not fit. Two products of opposite sign always fit, and so do two of one sign
with ``|w1| + |w2| ≤ 128``, for 255·128 < 2^15. Only pairs beyond that are changed: some 2 % in trained networks.
"""

import torch
from torch import Tensor

LARGEST_SUM = 128


def without_overflow(integers: Tensor, axis: int) -> Tensor:
    """``integers`` with every pair of neighbours (2j, 2j+1) along ``axis`` bounded to |w1| + |w2| ≤ 128 if of one sign.

    What is too much is taken from both alike (the nearest pair that fits), the odd one from the larger.

    >>> without_overflow(torch.tensor([127.0, 127.0, 127.0, -127.0, 100.0, 31.0, 127.0]), 0)
    tensor([  64.,   64.,  127., -127.,   98.,   30.,  127.])
    """
    axis %= integers.dim()
    count = integers.shape[axis] // 2
    first, second = integers.narrow(axis, 0, 2 * count).unflatten(axis, (count, 2)).unbind(axis + 1)
    size, other = first.abs(), second.abs()
    excess = torch.where(first * second > 0, (size + other - LARGEST_SUM).clamp_min(0), 0.0)
    half = (excess / 2).floor()
    cut = torch.where(size >= other, excess - half, half)
    pair = [first - torch.sign(first) * cut, second - torch.sign(second) * (excess - cut)]
    bounded = torch.stack(pair, axis + 1).flatten(axis, axis + 1)
    rest = integers.narrow(axis, 2 * count, integers.shape[axis] - 2 * count)
    return torch.cat([bounded, rest], axis)
