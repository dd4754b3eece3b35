"""A pickled table of byte arrays, lists and numbers, read so that nothing in it is run.

A pickle is a program for a small stack machine. Its instructions are looked through first, and only those that a table of
numbers consists of may pass. The few functions that numpy's arrays are pickled with are known by their names: stand-ins
here do what they would do, for arrays of bytes (``uint8``) only. Anything else is an error.
"""

import math
import pickle
import pickletools
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 62  # of a number: larger ones fit no array
_NAMES = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_LIST EMPTY_DICT
    EMPTY_TUPLE LIST TUPLE TUPLE1 TUPLE2 TUPLE3 DICT APPEND APPENDS SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET
    BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
"""
INSTRUCTIONS = frozenset(_NAMES.split())


class PickleError(ValueError):
    """The pickle is damaged, or holds what a table of numbers does not."""


def read_table(content: bytes) -> Any:
    """What was pickled: numbers, strings, lists, tuples, and a dict of these and of arrays of ``uint8``.

    What takes memory is in ``content`` already: an array is a view of its bytes, of a shape that fits them.
    """
    try:
        _refuse_other_instructions(content)
        table = _Reader(BytesIO(content), encoding="bytes").load()
    except PickleError:
        raise
    # cut off; a value taken from an empty stack; a key without a value; a call of something that is not a function
    except (pickle.UnpicklingError, ValueError, LookupError, TypeError, AttributeError, EOFError) as error:
        raise PickleError(f"it is no whole pickle: {error}") from error
    return {key: _value(item) for key, item in table.items()} if isinstance(table, dict) else table


def _refuse_other_instructions(content: bytes) -> None:
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in INSTRUCTIONS:
            raise PickleError(f"it has the instruction {opcode.name}, which no table of numbers needs")
        if isinstance(argument, int):
            if abs(argument) > LARGEST:
                raise PickleError("it has a number that is too large for a pixel or a label")
            if opcode.name.endswith("PUT") and argument > count:  # memory is made for all places up to this one
                raise PickleError("it remembers a value in a place that no writer chooses")


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a function: nothing is imported."""
        if f"{module}.{name}" not in _STAND_INS:
            raise PickleError(f"it names {f'{module}.{name}':.100}, which is no part of a table of numbers. It was not run")
        return _StandIn(_STAND_INS[f"{module}.{name}"])


class _Sealed:
    """What a pickle may make, and not change."""

    def __setstate__(self, state: Any) -> None:
        raise PickleError("it sets a state that nothing in a table of numbers has")


class _StandIn(_Sealed):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class _ByteType(_Sealed):
    """numpy's ``uint8``."""

    states = tuple((3, order, None, None, None, -1, -1, 0) for order in ("|", b"|"))  # the last says: no pointers

    def __setstate__(self, state: Any) -> None:
        if state not in self.states:
            super().__setstate__(state)


class _Bytes:
    """An array of bytes; its values come after it."""

    array: NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        self.set(content, kind, shape, "F" if fortran else "C")

    def set(self, content: Any, kind: Any, shape: Any, order: str) -> None:
        if not isinstance(kind, _ByteType):
            raise PickleError("it has an array of something other than bytes (uint8)")
        is_shape = isinstance(shape, tuple) and all(type(side) is int for side in shape)
        if not isinstance(content, bytes | bytearray) or not is_shape:
            raise PickleError("it has an array without values or shape")
        if len(shape) > 4 or min(shape, default=0) < 0 or math.prod(shape) != len(content):
            raise PickleError(f"it has an array of {len(content)} bytes that says it has shape {shape!r:.80}")
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _value(item: Any) -> Any:
    if isinstance(item, _Bytes) and item.array is None:
        raise PickleError("it has an array without values")
    return item.array if isinstance(item, _Bytes) else item


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in an old pickle."""
    if not isinstance(text, str) or encoding != "latin1":
        raise PickleError("it has bytes in an encoding that pickle does not use")
    return text.encode("latin-1")


def _byte_type(name: Any, *_: Any) -> _ByteType:
    if name not in ("u1", b"u1"):
        raise PickleError(f"it has an array of {name!r:.40}, not of bytes (uint8)")
    return _ByteType()


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Bytes:
    made = _Bytes()
    made.set(content, kind, shape, order)
    return made


def _no_values_yet(*_: Any) -> _Bytes:
    return _Bytes()


_STAND_INS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _encode,
    "numpy.dtype": _byte_type,
    "numpy.ndarray": _no_values_yet,
    # numpy's own modules had other names when the files were written
    **{f"numpy.{core}.multiarray._reconstruct": _no_values_yet for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _from_buffer for core in ("core", "_core")},
}
