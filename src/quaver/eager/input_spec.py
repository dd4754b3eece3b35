"""`InputSpec`: what a model takes, for writing it to a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quaver.errors import InputError


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: its shape, its dtype and, in the file, its name.

    The first size may be None (or −1): a batch of any size. ``name`` None is the name the model's forward has for it.

    >>> InputSpec([None, 3, 32, 32], "float32", "image").example().shape
    torch.Size([2, 3, 32, 32])
    """

    shape: Sequence[int | None]
    dtype: str | torch.dtype = "float32"
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Sequence) or isinstance(self.shape, str):
            raise InputError(f"InputSpec: shape={self.shape!r}: takes a list of sizes, such as [None, 3, 32, 32].")
        if not isinstance(self.name, str | None) or self.name == "":
            raise InputError(f"InputSpec: name={self.name!r}: takes a name, or None for the one that the model has for it.")
        sizes = tuple(None if size == -1 else size for size in self.shape)
        dtype = getattr(torch, self.dtype, None) if isinstance(self.dtype, str) else self.dtype
        if not isinstance(dtype, torch.dtype):
            raise InputError(f"InputSpec: dtype={self.dtype!r}: takes a dtype or its name, such as 'float32'.")
        if not sizes or any(size is None for size in sizes[1:]):
            raise InputError(f"InputSpec: shape={list(self.shape)!r}: only the first size, the batch, may be left open.")
        if not all(size is None or (isinstance(size, int) and size > 0) for size in sizes):
            raise InputError(f"InputSpec: shape={list(self.shape)!r}: sizes are whole numbers above 0.")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", dtype)

    def example(self, device: torch.device | None = None) -> Tensor:
        """Zeros of this shape; two where any number will do."""
        assert isinstance(self.dtype, torch.dtype)
        return torch.zeros([2 if size is None else size for size in self.shape], dtype=self.dtype, device=device)


Specs = InputSpec | Tensor | Sequence[InputSpec | Tensor]
"""What a model takes, described or shown by examples, whose batch may be of any size."""


def specs_of(given: Any) -> list[InputSpec]:
    """What a user gave, as a list: one `InputSpec` or several, or examples; at least one, no name twice."""
    listed = [given] if isinstance(given, InputSpec | Tensor) else list(given) if isinstance(given, list | tuple) else []
    described = [_of_example(item) if isinstance(item, Tensor) and item.dim() else item for item in listed]
    specs = [item for item in described if isinstance(item, InputSpec)]
    if not specs or len(specs) < len(listed):
        raise InputError(
            "input_spec: takes what the model is called with, such as [quaver.InputSpec([None, 3, 32, 32], 'float32', "
            f"'image')] or [images], not {given!r}."
        )
    names = [spec.name for spec in specs if spec.name is not None]
    if len(set(names)) < len(names):
        raise InputError(f"input_spec: two inputs have one name: {', '.join(map(repr, names))}.")
    return specs


def _of_example(example: Tensor) -> InputSpec:
    return InputSpec([None, *example.shape[1:]], example.dtype)
