"""Layer norms over the channels of each row, in the very arithmetic of OpenVINO's processor plugin.

What stands here gives every bit of OpenVINO 2026.4 with AVX-512; found by comparing rows of 1 to 1,024 channels.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.engines.openvino.gradients import with_gradient_of
from quaver.engines.openvino.lanes import LANES, by_rows, lanes_for, sum_of_quarters
from quaver.quantizers.eager_calls import ELEMENTS


def layer_norm(
    x: Tensor,
    sizes: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    _: bool = False,
) -> Tensor:
    """A norm as the engine computes it; as torch does, where the engine would not: of several axes, or not in float32."""
    if len(sizes) != 1 or x.dtype not in ELEMENTS:
        return F.layer_norm(x, sizes, weight, bias, eps)
    return with_gradient_of(partial(_as_torch, eps), partial(_as_engine, eps), x, weight, bias)


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, _: bool = True
) -> Tensor:
    """A norm of groups of channels as the engine computes it: each a row. As torch does where not in float32."""
    if x.dtype not in ELEMENTS:
        return F.group_norm(x, groups, weight, bias, eps)
    return with_gradient_of(partial(_groups_as_torch, groups, eps), partial(_groups_as_engine, groups, eps), x, weight, bias)


def _groups_as_torch(groups: int, eps: float, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return F.group_norm(x, groups, weight, bias, eps)


def _groups_as_engine(groups: int, eps: float, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    rows = x.reshape(len(x), groups, -1)
    normalized = by_rows(lambda rows: _normalized(rows, eps), rows).reshape(x.shape)
    channels = [-1, *[1] * (x.dim() - 2)]
    weight, bias = (one if one is None else one.view(channels) for one in (weight, bias))
    return _scaled(normalized.float(), weight, bias).to(x.dtype)


def _as_torch(eps: float, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _as_engine(eps: float, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return by_rows(lambda rows: _scaled(_normalized(rows, eps), weight, bias), x)


def _normalized(rows: Tensor, eps: float) -> Tensor:
    """Each row without its mean, times the reciprocal of its deviation."""
    share = torch.ones((), device=rows.device) / rows.shape[1]
    centered = rows - _total(rows) * share
    # in double precision: the square root of a float32, which torch takes from a library, is not always the nearest number
    deviation = (_total_of_squares(centered) * share + eps).double().sqrt().float()
    return centered * (1 / deviation)


def _total(rows: Tensor) -> Tensor:
    """The sum of each row."""
    lanes = lanes_for(rows)
    for part in _registers(rows):
        lanes[:, : part.shape[1]] += part
    return sum_of_quarters(lanes)


def _total_of_squares(rows: Tensor) -> Tensor:
    """The sum of each row's squares: products and sums in one rounding each, for which double precision stands in."""
    lanes = lanes_for(rows)
    for part in _registers(rows.double()):
        head = lanes[:, : part.shape[1]]
        head.copy_(torch.addcmul(head.double(), part, part))
    return sum_of_quarters(lanes)


def _registers(rows: Tensor) -> tuple[Tensor, ...]:
    """A row as it is read: a register at a time; of what is left over 8, 4, 2 and 1, each from the first lane on."""
    whole, left = divmod(rows.shape[1], LANES)
    return torch.split(rows, [LANES] * whole + [size for size in (8, 4, 2, 1) if left & size], 1)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """A norm's weight and bias, product and sum in one rounding."""
    if weight is None or bias is None:
        x = x if weight is None else x * weight.float()
        return x if bias is None else x + bias.float()
    return torch.addcmul(bias.double(), x.double(), weight.double()).float()
