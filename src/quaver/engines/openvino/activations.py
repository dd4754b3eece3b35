"""Activations with an exponential in them, in the very arithmetic of OpenVINO's processor plugin.

oneDNN approximates it by a polynomial, in float32, one rounding for each product and sum of it. Other libraries have
other last bits, and now and then (one integer in a hundred thousand) the tensor's rounding shows it. What stands here gives
every bit of OpenVINO 2026.4, whichever kernel the activation is part of; found by comparing some million values.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.quantizers.eager_calls import ELEMENTS, in_a_row, is_eager

BLOCK = 1 << 16
"""Values computed at once, for each of torch's threads."""


def _floats(*bits: int) -> tuple[float, ...]:
    """Floats by their bits, which is how an engine's constants are known."""
    return tuple(torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32).tolist())


LEAST, MOST = _floats(0xC2AEAC50, 0x42B17218)
"""Between what the exponential is computed: the logarithms of float32's least and largest number."""
LOG2_E, LN_2 = _floats(0x3FB8AA3B, 0x3F317218)
EXPONENTIAL = _floats(0x3C07CFCE, 0x3D2B9D0D, 0x3E2AAD40, 0x3EFFFEE3, 0x3F7FFFFB, 0x3F800000)
"""Of e^r, the highest power first."""


def _polynomial(x: Tensor, coefficients: Sequence[Tensor | float]) -> Tensor:
    """By Horner's rule, from the highest power: products and sums in one rounding each, as ``vfmadd`` has them.

    Double precision stands in for that: a product of two float32 is exact in it.
    """
    wide, result, *others = x.double(), *(torch.as_tensor(one, dtype=torch.double, device=x.device) for one in coefficients)
    for coefficient in others:
        result = torch.addcmul(coefficient, result, wide).float().double()
    return result.float()


def exponential(x: Tensor) -> Tensor:
    """e^x: 2^n·e^r, with n an integer and r at most half of ln 2."""
    bounded = x.clamp(LEAST, MOST)
    n = (bounded * LOG2_E + 0.5).floor()
    r = (bounded.double() - n.double() * LN_2).float()
    half = ((n.to(torch.int32) + 126) << 23).view(torch.float32)  # 2^(n - 1), for 2^128 is no float32
    return torch.where(x < LEAST, 0.0, _polynomial(r, EXPONENTIAL) * half * 2)


def sigmoid(x: Tensor) -> Tensor:
    """e^x/(e^x + 1) where x is negative; for others, what is left to 1 of that of −x."""
    power = exponential(-x.abs())
    below = power / (power + 1)
    return torch.where(x > 0, 1 - below, below)


def silu(x: Tensor) -> Tensor:
    """A tensor times its sigmoid."""
    return x * sigmoid(x)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """alpha·(e^x − 1) where x is not positive."""
    return torch.where(x > 0, x, (exponential(x) - 1) * alpha)


KERNELS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "sigmoid": (sigmoid, torch.sigmoid),
    "silu": (silu, F.silu),
    "elu": (elu, F.elu),
}
"""By the name of an op of torch: as the engine has it, and torch's own."""


def activation(name: str, x: Tensor, *arguments: Any) -> Tensor:
    """An activation as the engine computes it; as torch does, where the engine would not compute in float32."""
    as_engine, as_torch = KERNELS[name]
    if x.dtype not in ELEMENTS:
        return as_torch(x, *arguments)
    with torch.autocast(x.device.type, enabled=False):
        if not (x.is_cpu and is_eager(x)) or (torch.is_grad_enabled() and x.requires_grad):
            return as_engine(x.float(), *arguments).to(x.dtype)
        # a block at a time: what is computed on the way, some thirty tensors, stays in the cache
        x = in_a_row(x)
        result = torch.empty_like(x)
        blocks = (torch.split(_row(tensor), BLOCK * torch.get_num_threads()) for tensor in (x, result))
        for given, computed in zip(*blocks, strict=True):
            computed.copy_(as_engine(given.float(), *arguments))
        return result


def _row(x: Tensor) -> Tensor:
    """The values of a tensor without gaps, as they lie in memory."""
    return x.detach().as_strided((x.numel(),), (1,))
