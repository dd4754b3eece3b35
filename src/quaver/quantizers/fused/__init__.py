"""Quantizers as a few Triton kernels, for eager steps on an accelerator: the same bits in three launches instead of forty.

The expressions of `quaver.quantizers` stay what a quantizer is. A call takes its kernels instead where that is asked for
(``QUAVER_FUSED=1``) and where nobody has to see through it (`suits`).
"""

import os

import torch
from torch import Tensor, nn

from quaver.errors import ConfigError

SWITCH = "QUAVER_FUSED"
ELEMENTS = (torch.float32, torch.bfloat16, torch.float16)


def suits(x: Tensor) -> bool:
    """Whether kernels may stand for the expressions in this call.

    They may not where the expressions are looked at or take another meaning: under ``torch.compile``, ``torch.export``,
    ``torch.jit.trace`` and ``torch.func``, under a dispatch mode, and for tensors that are more than a tensor.
    """
    return (
        not torch.compiler.is_compiling()  # first: a compiler that reads this looks no further
        and not torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        and switched_on()
        and (x.get_device() == torch.cuda.current_device() if x.is_cuda else interpreted())
        and x.dtype in ELEMENTS
        and type(x) in (Tensor, nn.Parameter)
        and 0 < x.numel() < 2**31
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
    )


def switched_on() -> bool:
    """What the environment says. Off, where it says nothing: the kernels never ran on an accelerator yet."""
    switch = os.environ.get(SWITCH, "0")
    if switch not in ("0", "1"):
        raise ConfigError(f"{SWITCH}={switch!r} in the environment: 1 switches the fused quantizers on, 0 off.")
    return switch == "1"


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU: how tests see their bits."""
    return os.environ.get("TRITON_INTERPRET") == "1"
