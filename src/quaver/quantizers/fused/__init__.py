"""Quantizers as a few Triton kernels, for eager steps on an accelerator: the same bits in three launches instead of forty.

The expressions of `quaver.quantizers` stay what a quantizer is. A call takes its kernels instead where that is asked for
(``QUAVER_FUSED=1``) and where nobody has to see through it (`suits`).
"""

import os

import torch
from torch import Tensor

from quaver.errors import ConfigError
from quaver.quantizers.eager_calls import is_eager_now, is_plain

SWITCH = "QUAVER_FUSED"
MOST = 2**30
"""Values in a tensor. Kernels count places in 32 bits, and a program's next place may lie far beyond the last value."""


def suits(x: Tensor) -> bool:
    """Whether kernels may stand for the expressions in this call."""
    return is_eager_now() and switched_on() and takes(x)


def takes(x: Tensor) -> bool:
    """Whether the kernels can read this tensor."""
    here = x.get_device() == torch.cuda.current_device() if x.is_cuda else interpreted()
    return here and is_plain(x) and x.numel() < MOST


def switched_on() -> bool:
    """What the environment says. Off, where it says nothing: the kernels never ran on an accelerator yet."""
    switch = os.environ.get(SWITCH, "0")
    if switch not in ("0", "1"):
        raise ConfigError(f"{SWITCH}={switch!r} in the environment: 1 switches the fused quantizers on, 0 off.")
    return switch == "1"


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU: how tests see their bits."""
    return os.environ.get("TRITON_INTERPRET") == "1"
