"""A Triton kernel that is looked up once: asking what the arguments are takes Triton longer than launching it."""

from collections.abc import Hashable
from typing import Any

import torch


class Kernel:
    """A kernel as a function of its arguments; what Triton compiled for a form of them is launched again as it is.

    A form is all that Triton may compile otherwise for: dtypes, constants, numbers that are 1 or divisible by 16, whether
    pointers are (`divisibility`). Who calls says what the form is.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.compiled: dict[Hashable, Any] = {}

    def __call__(self, programs: int, device: int, form: Hashable, *arguments: Any) -> None:
        """Launch so many programs on an accelerator, or (-1) in the interpreter; constants stand among the arguments."""
        compiled = self.compiled.get((device, form))
        if compiled is None:
            compiled = self.function[(programs,)](*arguments, enable_fp_fusion=False)
            if device >= 0:
                self.compiled[device, form] = compiled
            return
        stream = torch._C._cuda_getCurrentRawStream(device)
        compiled.run(
            programs, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments
        )  # the hooks of Triton's own profiler are not called


def divisibility(number: int) -> int:
    """What Triton tells numbers apart by."""
    return 1 if number == 1 else 16 if number % 16 == 0 else 0
