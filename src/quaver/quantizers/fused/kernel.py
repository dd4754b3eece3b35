"""A Triton kernel for tensors of one form: asking what its arguments are takes Triton longer than launching it."""

from typing import Any

import torch

FORMS = 4096
"""Forms of tensors that each kernel is remembered for: several hundred are those of a large network."""


class Launch:
    """A kernel as a function of its tensors; what Triton compiled for it first is launched again as it is.

    A form is all that Triton may compile otherwise for: dtypes, numbers and constants, and whether pointers are divisible by
    16. Who makes a launch makes another for each, and remembers them. ``device`` is -1 in the interpreter. ``at_once``: no
    program begins before there is room for all of them, so that they can wait for each other.
    """

    __slots__ = ("compiled", "device", "function", "numbers", "options", "programs")

    def __init__(self, function: Any, programs: int, device: int, *numbers: Any, at_once: bool = False) -> None:
        self.function, self.programs, self.device, self.numbers = function, programs, device, numbers
        self.options = {"launch_cooperative_grid": True} if at_once and device >= 0 else {}
        self.compiled: tuple[Any, ...] = ()

    def __call__(self, *tensors: Any) -> None:
        """Launch so many programs; numbers, and constants behind them, stand behind the tensors."""
        if not self.compiled:
            compiled = self.function[(self.programs,)](*tensors, *self.numbers, enable_fp_fusion=False, **self.options)
            if self.device >= 0:
                self.compiled = compiled.run, compiled.function, compiled.packed_metadata
            return
        run, function, metadata = self.compiled
        stream = torch._C._cuda_getCurrentRawStream(self.device)
        # the hooks of Triton's own profiler are not called
        run(self.programs, 1, 1, stream, function, metadata, None, None, None, *tensors, *self.numbers)
