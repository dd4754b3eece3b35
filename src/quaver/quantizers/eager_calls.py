"""Whether a call is an ordinary one: a tensor that is there, computed with now, and nobody looking on."""

import torch
from torch import Tensor, nn

ELEMENTS = (torch.float32, torch.bfloat16, torch.float16)


def is_eager(x: Tensor) -> bool:
    """Whether something else may be computed that comes to the same bits, depending on what is in the tensor if need be.

    It may not where expressions are looked at or take another meaning: under ``torch.compile``, ``torch.export``,
    ``torch.jit.trace`` and ``torch.func``, under a dispatch mode, and for tensors that are more than a tensor.
    """
    return is_eager_now() and is_plain(x)


def is_eager_now() -> bool:
    """Whether nobody looks on."""
    return (
        not torch.compiler.is_compiling()  # first: a compiler that reads this looks no further
        and torch._C._get_tracing_state() is None
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
    )


def is_plain(x: Tensor) -> bool:
    """Whether a tensor is just that, with something in it."""
    return type(x) in (Tensor, nn.Parameter) and x.dtype in ELEMENTS and x.numel() > 0


def in_a_row(x: Tensor) -> Tensor:
    """``x``, or a copy of it that leaves no gaps in memory, so that its values can be counted off."""
    dense = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return x if dense else x.detach().clone()
