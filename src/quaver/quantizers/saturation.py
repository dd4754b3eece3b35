"""Keep weights from overflowing the 16 bits that older x86 processors add two products in.

Without VNNI, ``u8 · s8`` is multiplied with an instruction that adds the products of two neighbouring inputs in 16 bits, and
saturates: 255·127 + 255·127 does not fit. Two products of opposite sign always fit, and so do two of one sign with
``|w1| + |w2| ≤ 128``, for 255·128 < 2^15. Only pairs beyond that are changed: some 2 % in trained networks.

Neighbours are the channels (2j, 2j+1) of one filter tap. Where the channels are odd in number, kernels differ: some leave
the last one alone, some lay out the whole filter in a row, channels inside taps, so that the last channel of a tap meets the
first of the next. ONNX Runtime always does, OpenVINO where oneDNN has no kernel of its own: for groups of three channels,
say, and on AVX-512 for one channel, there with the taps column by column.
"""

import torch
from torch import Tensor
from torch.nn.functional import softshrink

LARGEST_SUM = 128


def without_overflow(integers: Tensor, axis: int) -> Tensor:
    """``integers`` of a weight with every pair of neighbours along ``axis`` bounded to |w1| + |w2| ≤ 128 if of one sign.

    What is too much is taken from both alike (the nearest pair that fits), the odd one from the larger. Where ``axis`` is
    odd, neighbours in a row of all taps are bounded as well; the first of the other axes counts the filters.

    >>> without_overflow(torch.tensor([127.0, 127.0, 127.0, -127.0, 100.0, 31.0, 127.0]), 0)
    tensor([  64.,   64.,  127., -127.,   98.,   30.,  127.])
    """
    return bounded(integers.clone(), axis)


def bounded(integers: Tensor, axis: int) -> Tensor:
    """`without_overflow` for integers that are nobody else's: some are changed where they are."""
    rows = _bounded_pairs(integers.movedim(axis, -1))  # filters, taps, channels
    if rows.shape[-1] % 2 and rows.dim() > 2:
        taps = range(1, rows.dim() - 1)
        for inner in (tuple(taps), tuple(reversed(taps))):
            order = (0, *inner, rows.dim() - 1)
            laid = rows.permute(order)
            rows = _bounded_pairs(laid.flatten(1)).reshape(laid.shape).permute(order)  # either order is its own inverse
    return rows.movedim(-1, axis)


def _bounded_pairs(rows: Tensor) -> Tensor:
    """Pairs (2j, 2j+1) along the last axis, bounded. At every step of training: each operation here is a launch."""
    count = rows.shape[-1] // 2
    if not count:
        return rows
    first, second = rows[..., 0 : 2 * count : 2], rows[..., 1::2]
    excess = softshrink(first + second, LARGEST_SUM)  # with the sign of both; of opposite signs the sum is small enough
    half = torch.div(excess, 2, rounding_mode="trunc")
    cut = torch.where((first - second) * excess >= 0, excess - half, half)  # the larger half of the larger one
    other = excess - cut
    if torch.compiler.is_compiling():  # one kernel anyway, which writing to parts of a tensor would break up
        pairs = torch.stack([first - cut, second - other], -1)
        return torch.cat([pairs.flatten(-2), rows[..., 2 * count :]], -1)
    first.sub_(cut)
    second.sub_(other)
    return rows
