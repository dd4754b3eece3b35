"""Quantizers as a few Triton kernels, for eager steps on an accelerator: the same bits in three launches instead of forty.

The expressions of `quaver.quantizers` stay what a quantizer is. A call takes its kernels instead where Triton can run them
and nobody has to see through it (`suits`), unless that is switched off (``QUAVER_FUSED=0``).
"""

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from quaver.errors import ConfigError
from quaver.quantizers.eager_calls import is_eager_now, is_plain

SWITCH = "QUAVER_FUSED"
SMALLEST = (7, 0)
"""What an accelerator has to be capable of (Volta)."""
MOST = 2**30
"""Values in a tensor. Kernels count places in 32 bits, and a program's next place may lie far beyond the last value."""


def suits(x: Tensor) -> bool:
    """Whether kernels may stand for the expressions in this call."""
    return is_eager_now() and takes(x)  # in this order: a compiler that reads this looks no further


def takes(x: Tensor) -> bool:
    """Whether the kernels are wanted for this tensor, and can read it."""
    if x.is_cuda:
        wanted = switched_on(x.get_device()) and x.get_device() == torch._C._cuda_getDevice()
    else:
        wanted = interpreted() and switched_on(None)
    return wanted and is_plain(x) and x.numel() < MOST


def switched_on(device: int | None) -> bool:
    """What the environment says; where it says nothing, kernels run on every accelerator that they can run on."""
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise ConfigError(f"{SWITCH}={switch!r} in the environment: 1 switches the fused quantizers on, 0 off.")
    return switch == "1" or (switch == "" and device is not None and _runs_on(device))


@cache
def _runs_on(device: int) -> bool:
    """Whether Triton is there, and compiles for this accelerator."""
    there = torch.version.cuda is not None and find_spec("triton") is not None
    return there and torch.cuda.get_device_capability(device) >= SMALLEST


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU: how tests see their bits."""
    return os.environ.get("TRITON_INTERPRET") == "1"
