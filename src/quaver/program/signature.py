"""What a program takes and gives back, so that nested inputs and outputs stay as the model had them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from quaver.errors import InputError


@dataclass(frozen=True)
class InputTensor:
    """A tensor input: its name, and its shape with None for a batch of any size."""

    name: str
    shape: tuple[int | None, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Signature:
    """The structure of a call. ``inputs`` lists the leaves in order: tensors to come, other values as captured.

    ``out_specs`` has the structure of the result for each mode: some models give back more in training.
    """

    inputs: tuple[InputTensor | int | float | bool | str | None, ...]
    in_spec: pytree.TreeSpec
    out_specs: dict[str, pytree.TreeSpec]

    @cached_property
    def tensors(self) -> list[InputTensor]:
        """The tensor inputs, in order."""
        return [leaf for leaf in self.inputs if isinstance(leaf, InputTensor)]

    @property
    def dynamic_batch(self) -> bool:
        """Whether any batch size can be given."""
        return any(None in leaf.shape for leaf in self.tensors)

    def is_empty(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are a batch without images."""
        free = (given for given, leaf in zip(tensors, self.tensors, strict=True) if None in leaf.shape)
        return any(not len(given) for given in free)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call, in order, checked against the captured ones."""
        if kwargs:  # in the order they were captured in
            captured = pytree.tree_unflatten(list(self.inputs), self.in_spec)[1]
            kwargs = {name: kwargs[name] for name in (*captured, *kwargs) if name in kwargs}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        # a loaded program has namedtuples of its own making: equal in outline is enough
        if spec != self.in_spec and _outline(spec) != _outline(self.in_spec):
            raise InputError(
                f"the program was called with {_outline(spec)} but was captured with {_outline(self.in_spec)}. "
                "Call it as the model was called in quaver.capture."
            )
        for given, expected in zip(leaves, self.inputs, strict=True):
            if isinstance(expected, InputTensor):
                _check_tensor(given, expected)
            elif given != expected:
                raise InputError(
                    f"the program was captured with the constant {expected!r} and called with {given!r}. "
                    "A captured graph follows one value: capture the model again for the other."
                )
        return [leaf for leaf, expected in zip(leaves, self.inputs, strict=True) if isinstance(expected, InputTensor)]

    def unflatten(self, outputs: Any, mode: str) -> Any:
        """The model's own output structure."""
        return pytree.tree_unflatten(list(outputs), self.out_specs[mode])

    def example(self, batch: int = 2) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Zero tensors in the captured structure, for a tool that wants an example call."""
        zeros = iter(self.zeros(batch))
        leaves = [next(zeros) if isinstance(leaf, InputTensor) else leaf for leaf in self.inputs]
        args, kwargs = pytree.tree_unflatten(leaves, self.in_spec)
        return args, kwargs

    def zeros(self, batch: int) -> list[Tensor]:
        """Zero tensors, in the order of the signature."""
        return [
            torch.zeros([batch if size is None else size for size in leaf.shape], dtype=leaf.dtype) for leaf in self.tensors
        ]


def _check_tensor(given: Any, expected: InputTensor) -> None:
    if not isinstance(given, Tensor):
        raise InputError(f"input {expected.name!r}: expected a tensor, got {type(given).__name__}.")
    fits = given.dim() == len(expected.shape) and all(
        want is None or have == want for have, want in zip(given.shape, expected.shape, strict=True)
    )
    if not fits:
        want = ", ".join("any" if size is None else str(size) for size in expected.shape)
        raise InputError(
            f"input {expected.name!r}: shape {tuple(given.shape)} does not fit the captured ({want}). "
            "Capture the model again with an example of this shape."
        )


class _Dot:
    def __repr__(self) -> str:
        return "·"


def _outline(spec: pytree.TreeSpec) -> str:
    args, kwargs = pytree.tree_unflatten([_Dot()] * spec.num_leaves, spec)
    arguments = [str(arg) for arg in args] + [f"{name}={value}" for name, value in kwargs.items()]
    return f"({', '.join(arguments)})"
