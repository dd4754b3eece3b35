"""Attention in float, a softmax between two products of tensors, in the very arithmetic of OpenVINO's processor plugin.

What stands here gives every bit of OpenVINO 2026.4 with AVX-512; found by comparing softmaxes of 3 to 3,136 values, and
products along as many. Of the products no other processor has other bits, up to 512 of them.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.engines.openvino.activations import exponential
from quaver.engines.openvino.gradients import with_gradient_of
from quaver.engines.openvino.lanes import BLOCK, LANES, by_rows, lanes_for, sum_of_halves
from quaver.quantizers.eager_calls import ELEMENTS

BLOCKS = (512, 1024)
"""Products along an axis that are added up in one go: the first along one of twice as many or less."""
REGISTERS = 4
"""To which the registers of a row are added in turn, in a softmax."""


def softmax(x: Tensor, axis: int, dtype: torch.dtype | None = None) -> Tensor:
    """A softmax as the engine computes it; as torch does, along another axis than the last, and where not in float32."""
    if dtype not in (None, torch.float32) or x.dtype not in ELEMENTS or axis not in (-1, x.dim() - 1):
        return torch.softmax(x, axis, dtype)
    return with_gradient_of(partial(torch.softmax, dim=-1, dtype=dtype), partial(by_rows, _softmax), x)


def _softmax(rows: Tensor) -> Tensor:
    powers = exponential(rows - rows.amax(1, keepdim=True))
    return powers * (1 / _total(powers))


def _total(rows: Tensor) -> Tensor:
    """The sum of each row. What is left over when registers are full is added to the first."""
    sums = [lanes_for(rows) for _ in range(REGISTERS)]
    for place, part in enumerate(torch.split(rows, LANES, 1)):
        is_full = part.shape[1] == LANES
        sums[place % REGISTERS if is_full else 0][:, : part.shape[1]] += part
    first, second, third, fourth = sums
    return sum_of_halves((first + second) + (third + fourth))


def matrix_product(x: Tensor, y: Tensor) -> Tensor:
    """A product of matrices as the engine computes it; as torch does, with vectors, and where not in float32."""
    if x.dim() < 2 or y.dim() < 2 or not {x.dtype, y.dtype}.issubset(ELEMENTS) or 1 in (x.shape[-2], y.shape[-1]):
        return torch.matmul(x, y)
    return with_gradient_of(torch.matmul, _product, x, y)


def einsum(equation: str, tensors: Sequence[Tensor], **options: Any) -> Tensor:
    """A sum over one index of two tensors' products, as the engine computes it: a product of matrices. Others as torch."""
    indices = _indices(equation)
    if indices is None:
        return torch.einsum(equation, tensors, **options)
    x, y, both, left, right, shared, result = indices
    sizes = dict(zip(x + y, (*tensors[0].shape, *tensors[1].shape), strict=True))
    images = [sizes[index] for index in both]
    rows, columns = (math.prod(sizes[index] for index in own) for own in (left, right))
    first = _turned(tensors[0], x, both + left + shared).reshape(*images, rows, sizes[shared])
    second = _turned(tensors[1], y, both + shared + right).reshape(*images, sizes[shared], columns)
    product = matrix_product(first, second)
    return _turned(product.reshape([sizes[index] for index in both + left + right]), both + left + right, result)


def _indices(equation: str) -> tuple[str, str, str, str, str, str, str] | None:
    """Those of two tensors; those of both, of the first and of the second that stay, the one that goes; the result's.

    None where it is no product of matrices.
    """
    given, arrow, result = equation.replace(" ", "").partition("->")
    x, comma, y = given.partition(",")
    if not arrow or not comma or not all(one.isalpha() and len(set(one)) == len(one) for one in (x, y, result)):
        return None
    both = "".join(index for index in result if index in x and index in y)
    left, right = ("".join(index for index in result if index in one and index not in both) for one in (x, y))
    gone = set(x + y) - set(result)
    if len(gone) != 1 or not gone.issubset(x) or not gone.issubset(y):
        return None
    return x, y, both, left, right, gone.pop(), result


def _turned(tensor: Tensor, indices: str, wanted: str) -> Tensor:
    return tensor.permute([indices.index(index) for index in wanted])


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiler would write down some hundred steps one by one
def _product(x: Tensor, y: Tensor) -> Tensor:
    """Blocks of products along the shared axis, each added up on its own."""
    images: torch.Size = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])  # type: ignore[no-untyped-call]
    left, right = (one.float().expand(*images, *one.shape[-2:]).reshape(-1, *one.shape[-2:]) for one in (x, y))
    block = BLOCKS[x.shape[-1] > 2 * BLOCKS[0]]
    result = left.new_empty(len(left), x.shape[-2], y.shape[-1])
    at_once = max(BLOCK * torch.get_num_threads() // result[0].numel(), 1) if x.is_cpu else len(left)
    for a, b, computed in zip(*(torch.split(one, at_once) for one in (left, right, result)), strict=True):
        for place, pair in enumerate(zip(torch.split(a, block, 2), torch.split(b, block, 1), strict=True)):
            computed.copy_(computed + _in_order(*pair) if place else _in_order(*pair))
    return result.reshape(*images, *result.shape[1:]).to(x.dtype)


def _in_order(x: Tensor, y: Tensor) -> Tensor:
    """One product added after the other, each in one rounding, for which double precision stands in."""
    left, right = x.double().unbind(2), y.double().unbind(1)
    rounded = x.new_zeros(len(x), x.shape[1], y.shape[2])
    total = rounded.double()
    for column, row in zip(left, right, strict=True):
        rounded.copy_(total.addcmul_(column[:, :, None], row[:, None]))
        total.copy_(rounded)
    return rounded


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention as the engine computes it: queries and keys times a root of the scale each, as files have it.

    As torch computes it where it is causal, and with fewer keys than queries.
    """
    if is_causal or enable_gqa or dropout_p or not query.is_floating_point():
        tensors = (query, key, value, attn_mask)
        return F.scaled_dot_product_attention(*tensors, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    root = _root(query.shape[-1] if scale is None else scale, scale is None)
    products = matrix_product(query * root, (key * root).transpose(-2, -1))
    if attn_mask is not None:
        no = torch.tensor(-torch.inf, device=query.device)
        products = products + (torch.where(attn_mask, 0.0, no) if attn_mask.dtype is torch.bool else attn_mask)
    return matrix_product(softmax(products, -1), value)


def _root(number: float, is_size: bool) -> float:
    """The root of a scale, or of the usual one for heads of a size, in float32."""
    scale = torch.tensor(number, dtype=torch.float32)
    if is_size:
        scale = 1 / scale.double().sqrt().float()
    return float(scale.double().sqrt().float())
