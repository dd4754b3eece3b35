"""Keep weights from overflowing the 16 bits that older x86 processors add two products in.

Without VNNI, ``u8 · s8`` is multiplied with an instruction that adds the products of two neighbouring inputs in 16 bits, and
saturates: 255·127 + 255·127 does not fit. Two products of opposite sign always fit, and so do two of one sign with
``|w1| + |w2| ≤ 128``, for 255·128 < 2^15. The ranges of a weight are chosen so that all pairs fit (`largest_pair`); where
something else chooses them (a learned step, a clip, a user's function), pairs beyond the bound are cut (`bounded`).

Widening the range of the channels that need it costs their rounding a little; cutting, which spares the others' steps, ruins
pretrained weights, for the largest ones are cut (``docs/design.md`` has the figures).

Neighbours are the channels (2j, 2j+1) of one filter tap. Where the channels are odd in number, kernels differ: some leave
the last one alone, some lay out the whole filter in a row, channels inside taps, so that the last channel of a tap meets the
first of the next. ONNX Runtime always does, OpenVINO where oneDNN has no kernel of its own: for groups of three channels,
say, and on AVX-512 for one channel, there with the taps column by column.
"""

import torch
from torch import Tensor
from torch.nn.functional import softshrink

LARGEST_SUM = 128
JUST_BELOW = 1 - 2**-20
"""Room for float32: two steps whose sum is below 128 round, ties to even, to integers whose sum is not above it."""


def largest_pair(weight: Tensor, axis: int, *, by_filter: bool) -> Tensor:
    """The largest |w1 + w2| of all neighbours along ``axis``, of each filter or of all; neighbours as in `bounded`.

    Of opposite signs the sum is less than the larger one, and says nothing.

    >>> largest_pair(torch.tensor([[3.0, 4.0, -2.0], [1.0, -5.0, 2.0]]), 1, by_filter=True)
    tensor([7., 4.])
    """
    rows = weight.movedim(axis, -1)  # filters, taps, channels
    if rows.dim() == 1:
        rows = rows[None]
    sums = [(first + second).flatten(1) for first, second in neighbours(rows)]
    sizes = (sums[0] if len(sums) == 1 else torch.cat(sums, 1)).abs()
    if not sizes.shape[1]:
        return weight.new_zeros(len(sizes) if by_filter else ())
    return sizes.amax(1) if by_filter else sizes.amax()


def neighbours(rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """First and second of all pairs in rows of filters, taps and channels; in each layout that engines have for them."""
    laid = [rows, *(rows.permute(order).flatten(1) for order in _layouts(rows))]
    return [(values[..., 0 : values.shape[-1] // 2 * 2 : 2], values[..., 1::2]) for values in laid]


def _layouts(rows: Tensor) -> list[tuple[int, ...]]:
    """The orders in which a filter with an odd number of channels is laid out in a row; each is its own inverse."""
    if rows.shape[-1] % 2 == 0 or rows.dim() < 3:
        return []
    taps = tuple(range(1, rows.dim() - 1))
    return [(0, *inner, rows.dim() - 1) for inner in (taps, taps[::-1])]


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
    for order in _layouts(rows):
        laid = rows.permute(order)
        rows = _bounded_pairs(laid.flatten(1)).reshape(laid.shape).permute(order)
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
