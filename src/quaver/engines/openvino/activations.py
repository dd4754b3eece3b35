"""Activations with an exponential or an error function in them, in the very arithmetic of OpenVINO's processor plugin.

oneDNN approximates both by polynomials, in float32, one rounding for each product and sum of theirs. Other libraries have
other last bits, and now and then (one integer in a hundred thousand) the tensor's rounding shows it. What stands here gives
every bit of OpenVINO 2026.4, whichever kernel the activation is part of; found by comparing some million values.
"""

from collections.abc import Callable, Sequence
from functools import cache
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


def gelu(x: Tensor) -> Tensor:
    """x·(1 + erf(x/√2))/2 with AVX-512: a polynomial for each of 23 ranges of |x|, by two bits of its mantissa.

    Without AVX-512 oneDNN has another formula, which differs by at most 1.3e-6.
    """
    size = x.abs()
    last = len(ERROR_FUNCTION[0]) - 1
    place = ((size.view(torch.int32) >> 21) - FIRST_RANGE).clamp(0, last - 1)
    place = torch.where(size > ONE_FROM, last, place)
    erf = _polynomial(size, [row[place] for row in _error_function(x.device)])
    return x * (torch.where(torch.signbit(x), -erf, erf) + 1) * 0.5


@cache
def _error_function(device: torch.device) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(row, dtype=torch.double, device=device) for row in reversed(ERROR_FUNCTION))


KERNELS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "sigmoid": (sigmoid, torch.sigmoid),
    "silu": (silu, F.silu),
    "elu": (elu, F.elu),
    "gelu": (gelu, F.gelu),
}
"""By the name of an op of torch: as the engine has it, and torch's own."""
EXACT_EVERYWHERE = ("sigmoid", "silu", "elu")
"""Those that every processor with AVX2 computes alike."""


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


FIRST_RANGE = 496
"""The upper bits of a float32, down to the second of its mantissa: from 1/8 to 5/32, where the first range ends."""
(ONE_FROM,) = _floats(0x40B15CEE)
"""Of |x|: beyond it the error function is 1."""
ERROR_FUNCTION = tuple(
    _floats(*row)
    for row in (
        (
            0x32827792,
            0x3381CC0C,
            0x34523D4A,
            0x351AC44D,
            0x35F36D88,
            0x36EE8229,
            0x37B8A3BB,
            0x3867A213,
            0x3940033B,
            0x3A2A5A1D,
            0x3AE35863,
            0x3B7828F2,
            0x3C08B14B,
            0x3C515ED3,
            0xBB503236,
            0xBD8D8E5E,
            0xBE8ABCD9,
            0xBF0C19A2,
            0xBECCB328,
            0x3E176CED,
            0x3F470D99,
            0x3F7ABB28,
            0x3F800000,
        ),
        (
            0x3F4C421F,
            0x3F4C4207,
            0x3F4C41CB,
            0x3F4C413B,
            0x3F4C3FAD,
            0x3F4C3A2F,
            0x3F4C2D40,
            0x3F4C146A,
            0x3F4BC341,
            0x3F4AD08C,
            0x3F48F8CF,
            0x3F45FAC7,
            0x3F404E07,
            0x3F3B980F,
            0x3F48DFF3,
            0x3F78B21B,
            0x3FBB0704,
            0x40019C32,
            0x3FE536D6,
            0x3F81331E,
            0x3E6C8684,
            0x3C98F936,
            0x00000000,
        ),
        (
            0x3735E4CF,
            0x37F2FF89,
            0x388C23BE,
            0x3917535C,
            0x39AB2AB0,
            0x3A60FADB,
            0x3AF9B960,
            0x3B6E5491,
            0x3C0A4EC5,
            0x3CA5AA8C,
            0x3D2138D9,
            0x3D8737D4,
            0x3DDFB660,
            0x3E0F27AB,
            0x3D94004B,
            0xBE0EFDEB,
            0xBF1D96C3,
            0xBF89DB58,
            0xBF6D9897,
            0xBEF69FB8,
            0xBDC4F8A8,
            0xBBDE6422,
            0x00000000,
        ),
        (
            0xBE084570,
            0xBE08639B,
            0xBE089837,
            0xBE08F409,
            0xBE09AB95,
            0xBE0B66D0,
            0xBE0E400A,
            0xBE124DF8,
            0xBE1BDE02,
            0xBE2F19C9,
            0xBE4931BF,
            0xBE685FBC,
            0xBE89C95F,
            0xBE96CBCA,
            0xBE8044AA,
            0xBE0550F2,
            0x3DCFD6A1,
            0x3E94C826,
            0x3E79345F,
            0x3DECEC91,
            0x3CA46568,
            0x3AA1E00A,
            0x00000000,
        ),
        (
            0x39F097A3,
            0x3A5845DC,
            0x3AB1FA35,
            0x3B0CEFB8,
            0x3B653AB6,
            0x3BCAE527,
            0x3C221712,
            0x3C6C5840,
            0x3CC0A703,
            0x3D1DCC19,
            0x3D63656D,
            0x3D955907,
            0x3DBF9910,
            0x3DD53F69,
            0x3DB7DCEF,
            0x3D639EBE,
            0xBA6EDE48,
            0xBD22BE69,
            0xBD041CF1,
            0xBC64F5AB,
            0xBB097A32,
            0xB8EBF380,
            0x00000000,
        ),
        (
            0x3C9B6050,
            0x3C978D11,
            0x3C92E850,
            0x3C8D058B,
            0x3C848454,
            0x3C6CD623,
            0x3C4C824B,
            0x3C2A7935,
            0x3BE0B390,
            0x3B0651AC,
            0xBB232F53,
            0xBBD42FA0,
            0xBC2C5366,
            0xBC492C9E,
            0xBC2A7AA6,
            0xBBD55D04,
            0xBA823A76,
            0x3B102AA8,
            0x3AE25A7E,
            0x3A31F792,
            0x38B84375,
            0x3689BB5A,
            0x00000000,
        ),
    )
)
"""Of erf(x/√2), from the constant on: a coefficient for each range. The table is oneDNN's, read from the running engine."""
