"""What a program takes and gives back, so that nested inputs and outputs stay as the model had them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from quaver.errors import InputError

IMAGES = 4  # dimensions of a batch of them


@dataclass(frozen=True)
class Side:
    """A height or width that may be another: as captured, by multiples of what it may change, and how small it may be."""

    captured: int
    multiple: int
    least: int

    def takes(self, size: int) -> bool:
        """Whether the graphs hold for this size."""
        return size >= self.least and (size - self.captured) % self.multiple == 0

    def words(self) -> str:
        """The sizes that are taken.

        >>> Side(64, 32, 32).words()
        'any multiple of 32 from 32 on'
        """
        any_of = f"multiple of {self.multiple}" if self.multiple > 1 else "size"
        plus = f" plus {rest}" if (rest := self.captured % self.multiple) else ""
        return f"any {any_of}{plus} from {self.least} on"


@dataclass(frozen=True)
class InputTensor:
    """A tensor input: its name, and its shape with None for a batch of any size.

    ``sides`` are height and width where these may be others, too; the shape has None for them.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: torch.dtype
    sides: tuple[Side, ...] = ()

    @property
    def free_batch(self) -> bool:
        """Whether it is a batch of any size."""
        return self.shape[:1] == (None,)

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether a tensor may have this shape."""
        fits = len(shape) == len(self.shape) and all(
            want is None or have == want for have, want in zip(shape, self.shape, strict=True)
        )
        return fits and all(side.takes(size) for side, size in zip(self.sides, shape[-2:], strict=False))

    def sizes(self, batch: int) -> list[int]:
        """A shape that it takes: with this batch where that is free, and the sides of capture."""
        rest = [*self.shape[: len(self.shape) - len(self.sides)], *(side.captured for side in self.sides)]
        return [batch if size is None else size for size in rest]


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
        return any(leaf.free_batch for leaf in self.tensors)

    def is_empty(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are a batch without images."""
        free = (given for given, leaf in zip(tensors, self.tensors, strict=True) if leaf.free_batch)
        return any(not len(given) for given in free)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call, in order, checked against the captured ones."""
        if kwargs:
            args, kwargs = self._as_captured(args, kwargs)
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

    def checked(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors in the order of the signature, where they fit it."""
        for given, expected in zip(tensors, self.tensors, strict=True):
            _check_tensor(given, expected)
        return list(tensors)

    def _as_captured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call with what is given by name where capture had it: by its position, or by name in the order of capture."""
        by_place, by_name = pytree.tree_unflatten(list(self.inputs), self.in_spec)
        rest = dict(kwargs)
        for argument in by_place[len(args) :]:
            name = _parameter(argument)
            if name not in rest:
                break
            args = (*args, rest.pop(name))
        return args, {name: rest[name] for name in (*by_name, *rest) if name in rest}

    def output_names(self, mode: str, outputs: Sequence[Any]) -> list[str]:
        """Names for those of a graph's ``outputs`` that are tensors: the keys of the model's dict, or numbers."""
        spec = self.out_specs[mode]
        paths = [path for path, _ in pytree.tree_leaves_with_path(pytree.tree_unflatten(list(range(len(outputs))), spec))]
        keyed = [paths[place] for place, value in enumerate(outputs) if isinstance(value, fx.Node)]
        numbered = ["output"] if len(keyed) == 1 else [f"output_{place}" for place in range(len(keyed))]
        names = [
            ".".join(map(step_of, path)) if any(isinstance(key, pytree.MappingKey) for key in path) else number
            for path, number in zip(keyed, numbered, strict=True)
        ]
        taken = {leaf.name for leaf in self.tensors}
        return [f"output.{name}" if name in taken else name for name in names]

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
        return [torch.zeros(leaf.sizes(batch), dtype=leaf.dtype) for leaf in self.tensors]


def step_of(key: Any) -> str:
    """A step on the path to a leaf, as text: an index, a key or an attribute."""
    return str(next(iter(vars(key).values()))) if not hasattr(key, "__slots__") else str(getattr(key, key.__slots__[0]))


def _parameter(argument: Any) -> str | None:
    """The name of the parameter that an argument was given for, as its tensors have it."""
    leaf = next((leaf for leaf in pytree.tree_leaves(argument) if isinstance(leaf, InputTensor)), None)
    return None if leaf is None else leaf.name.partition(".")[0]


def _check_tensor(given: Any, expected: InputTensor) -> None:
    if not isinstance(given, Tensor):
        raise InputError(f"input {expected.name!r}: expected a tensor, got {type(given).__name__}.")
    if not expected.takes(given.shape):
        want = ", ".join("any" if size is None else str(size) for size in expected.shape)
        sides = " and ".join(side.words() for side in expected.sides)
        only = f" Its height and width take {sides}; at others the model computes something else." if sides else ""
        way_out = ", or with dynamic=True for images of many sizes" if len(expected.shape) == IMAGES and not sides else ""
        raise InputError(
            f"input {expected.name!r}: shape {tuple(given.shape)} does not fit the captured ({want}).{only} "
            f"Capture the model again with an example of this shape{way_out}."
        )


class _Dot:
    def __repr__(self) -> str:
        return "·"


def _outline(spec: pytree.TreeSpec) -> str:
    args, kwargs = pytree.tree_unflatten([_Dot()] * spec.num_leaves, spec)
    arguments = [str(arg) for arg in args] + [f"{name}={value}" for name, value in kwargs.items()]
    return f"({', '.join(arguments)})"
