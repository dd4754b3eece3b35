"""What every runner is: an artefact on its engine, called with numpy batches."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.checking import nearest
from quaver.errors import InputError
from quaver.image_input import ImageInput
from quaver.program.empty_batch import empty_shape

Array = NDArray[Any]


@dataclass(frozen=True)
class Input:
    """An input: its name, its shape with None for a size that may be any, and its dtype."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]


class Runner(ABC):
    """An artefact, loaded. ``run(batch)`` gives the output; a model with several outputs gives a tuple of them.

    Several inputs are given in order, by name, or as one dict; ``run.named(…)`` gives the outputs by name: the keys of what
    the model gives back, or numbers. Any number of threads may call one runner. What it gives is the caller's own.
    ``in_turns``: calls wait for each other.
    """

    engine: str
    inputs: list[Input]
    image: ImageInput | None = None
    """How a file takes a camera's bytes, where it does."""
    outputs: tuple[str, ...] = ()
    """Names of the outputs, as far as they are known."""
    threads = 1
    in_turns = False

    def __call__(self, *batch: Array | Mapping[str, Array], **by_name: Array) -> Array | tuple[Array, ...]:
        """Run a batch of any size on the engine. One without images gives outputs without any."""
        outputs = self._run(batch, by_name)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def named(self, *batch: Array | Mapping[str, Array], **by_name: Array) -> dict[str, Array]:
        """The same, with the outputs by their names."""
        outputs = self._run(batch, by_name)
        names = self.outputs if len(self.outputs) == len(outputs) else map(str, range(len(outputs)))
        return dict(zip(names, outputs, strict=True))

    def _run(self, batch: tuple[Any, ...], by_name: Mapping[str, Any]) -> list[Array]:
        given = self._in_order(batch, by_name)
        fitting = [_fitting(value, expected, self.image) for value, expected in zip(given, self.inputs, strict=True)]
        return self.infer(fitting) if _size_of(fitting, self.inputs) else self._infer_nothing(fitting)

    def _in_order(self, batch: tuple[Any, ...], by_name: Mapping[str, Any]) -> list[Any]:
        """What each input is given, in their order; those that are not given by position are given by name."""
        only = batch[0] if len(batch) == 1 else None
        if isinstance(only, Mapping):
            batch, by_name = (), {**only, **by_name}
        names = [expected.name for expected in self.inputs]
        listed = f"the model takes {len(names)} inputs ({', '.join(map(repr, names))})"
        strange = next((name for name in by_name if name not in names[len(batch) :]), None)
        if strange is not None:
            twice = " twice" if strange in names else ""
            raise InputError(f"{listed} and was given {strange!r}{twice}.{nearest(strange, names) if not twice else ''}")
        if len(batch) + len(by_name) != len(names):
            raise InputError(f"{listed} and was given {len(batch) + len(by_name)}.")
        return [*batch, *(by_name[name] for name in names[len(batch) :])]

    @abstractmethod
    def infer(self, batch: list[Array]) -> list[Array]:
        """The engine's own call, on inputs that fit."""

    def _infer_nothing(self, batch: list[Array]) -> list[Array]:
        """The outputs for no image. Engines differ there, or refuse: they are asked for one and for two instead."""
        outputs_of_one, outputs_of_two = (
            self.infer(
                [
                    np.full((count, *given.shape[1:]) if _is_free(expected) else given.shape, count, given.dtype)
                    for given, expected in zip(batch, self.inputs, strict=True)
                ]
            )
            for count in (1, 2)
        )
        return [_for_nothing(*outputs) for outputs in zip(outputs_of_one, outputs_of_two, strict=True)]


def _for_nothing(for_one: Array, for_two: Array) -> Array:
    if for_one.shape != for_two.shape:
        return np.empty(empty_shape(for_one.shape, for_two.shape), for_one.dtype)
    if np.array_equal(for_one, for_two):  # whatever the images are
        return for_one
    raise InputError("the batch is empty, and an output of the model mixes the images of a batch: give at least one.")


def _is_free(expected: Input) -> bool:
    return expected.shape[:1] == (None,)


def _size_of(batch: list[Array], inputs: list[Input]) -> int:
    """How many images there are; 1 where the model does not leave that open."""
    sizes = {len(given) for given, expected in zip(batch, inputs, strict=True) if _is_free(expected)}
    if len(sizes) > 1:
        raise InputError(f"the inputs have batches of different sizes: {', '.join(map(str, sorted(sizes)))}.")
    return sizes.pop() if sizes else 1


def _fitting(given: Any, expected: Input, image: ImageInput | None) -> Array:
    """The input as the engine reads it: where it lies, if it lies there as it should."""
    hint = "" if image is None else f" The file takes {image.words()}."
    try:
        array = np.asarray(given)
    except Exception as error:  # whatever the object's own way to an array may raise
        raise InputError(f"input {expected.name!r}: is no array: {error}.") from error
    if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, expected.dtype, "safe" if image else "same_kind"):
        raise InputError(f"input {expected.name!r}: takes {expected.dtype}, not {array.dtype}.{hint}")
    fits = array.ndim == len(expected.shape) and all(
        (have > 0 or not axis) if want is None else have == want
        for axis, (have, want) in enumerate(zip(array.shape, expected.shape, strict=True))
    )
    if not fits:
        want = ", ".join("any" if size is None else str(size) for size in expected.shape)
        raise InputError(f"input {expected.name!r}: shape {array.shape} does not fit the model's ({want}).{hint}")
    try:
        array = np.asarray(array, dtype=expected.dtype, order="C")
        return array if array.flags.aligned else array.copy()
    except MemoryError as error:
        raise InputError(
            f"input {expected.name!r}: shape {array.shape} does not fit into memory: give fewer at once."
        ) from error
