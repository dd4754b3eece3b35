"""Keep weights from overflowing the 16 bits that older x86 processors add two products in.

Without VNNI, ``u8 · s8`` is multiplied with an instruction that adds the products of two neighbouring inputs in 16 bits, and
saturates: 255·127 + 255·127 does not fit. Two products of opposite sign always fit, and so do two of one sign with
``|w1| + |w2| ≤ 128``, for 255·128 < 2^15. Only pairs beyond that are changed: some 2 % in trained networks.

Neighbours are the channels (2j, 2j+1) of one filter tap. Where the channels are odd in number, kernels differ: some leave the
last one alone, some lay out a row of the filter, or the whole of it, channels inside taps, and there the last channel of a
tap meets the first of the next (oneDNN for one channel, and for groups of three, say; ONNX Runtime always).
"""

import torch
from torch import Tensor

LARGEST_SUM = 128


def without_overflow(integers: Tensor, axis: int) -> Tensor:
    """``integers`` of a weight with every pair of neighbours along ``axis`` bounded to |w1| + |w2| ≤ 128 if of one sign.

    What is too much is taken from both alike (the nearest pair that fits), the odd one from the larger. Where ``axis`` is
    odd, neighbours across taps are bounded as well; the first of the other axes counts the filters, the rest are taps.

    >>> without_overflow(torch.tensor([127.0, 127.0, 127.0, -127.0, 100.0, 31.0, 127.0]), 0)
    tensor([  64.,   64.,  127., -127.,   98.,   30.,  127.])
    """
    rows = _bounded(integers.movedim(axis, -1))  # filters, taps, channels
    for taps in range(rows.dim() - 2, 0, -1):
        if rows.shape[taps + 1 :].numel() % 2 == 0:
            break  # no pair spans these
        rows = _bounded(rows.flatten(taps)).reshape(rows.shape)
    return rows.movedim(-1, axis)


def _bounded(rows: Tensor) -> Tensor:
    """Pairs (2j, 2j+1) along the last axis, bounded."""
    count = rows.shape[-1] // 2
    first, second = rows[..., 0 : 2 * count : 2], rows[..., 1::2]
    size, other = first.abs(), second.abs()
    excess = torch.where(first * second > 0, (size + other - LARGEST_SUM).clamp_min(0), 0.0)
    half = (excess / 2).floor()
    cut = torch.where(size >= other, excess - half, half)
    pairs = torch.stack([first - torch.sign(first) * cut, second - torch.sign(second) * (excess - cut)], -1)
    return torch.cat([pairs.flatten(-2), rows[..., 2 * count :]], -1)
