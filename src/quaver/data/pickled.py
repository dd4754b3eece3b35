"""A pickled table of byte arrays, lists and numbers, read without the pickle machinery: nothing in it is run.

A pickle is a program for a small stack machine. `pickletools` takes it apart, and here are the instructions that a table
of numbers consists of. The few functions that numpy's arrays are pickled with are known by their names: what they would
make of their arguments is done here, for arrays of bytes (``uint8``) only. Whatever else there is, is an error.
"""

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 62  # of a number: larger ones fit no array


class PickleError(ValueError):
    """The pickle is damaged, or holds what a table of numbers does not."""


def read_table(content: bytes) -> Any:
    """What was pickled: numbers, strings, lists, tuples, dicts and arrays of ``uint8``.

    What takes memory is in ``content`` already: an array is a view of its bytes, of a shape that fits them.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(content):
            machine.do(opcode.name, argument)
        value = machine.stack.pop()
    except PickleError:
        raise
    except (ValueError, LookupError, TypeError) as error:  # cut off; a value taken from an empty stack; an odd key
        raise PickleError(f"it is no whole pickle: {error}") from error
    return _value(value)


class _Machine:
    """The stack and the memory of a pickle that is being read."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under each mark
        self.memory: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        """One instruction."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name](argument))
        elif name in _MEMORY:
            self._remember(name, argument)
        elif name in _FROM_MARK:
            items, self.stack = self.stack, self.below.pop()
            _FROM_MARK[name](self.stack, items)
        elif name in _FROM_STACK:
            count, make = _FROM_STACK[name]
            items = [self.stack.pop() for _ in range(count)][::-1]
            make(self.stack, items)
        elif name == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise PickleError(f"it has the instruction {name}, which no table of numbers needs")

    def _remember(self, name: str, argument: Any) -> None:
        if name.endswith("GET"):
            self.stack.append(self.memory[argument])
        else:
            self.memory[len(self.memory) if name == "MEMOIZE" else argument] = self.stack[-1]


@dataclass(frozen=True)
class _Function:
    name: str


class _ByteType:
    """numpy's ``uint8``."""

    states = tuple((3, order, None, None, None, -1, -1, 0) for order in ("|", b"|"))  # the last says: no pointers


class _Bytes:
    """An array of bytes; its values come after it."""

    array: NDArray[np.uint8] | None = None

    def set(self, content: Any, kind: Any, shape: Any, order: str) -> None:
        if not isinstance(kind, _ByteType):
            raise PickleError("it has an array of something other than bytes (uint8)")
        if not isinstance(content, bytes) or not isinstance(shape, tuple) or not all(type(side) is int for side in shape):
            raise PickleError("it has an array without values or shape")
        if len(shape) > 4 or min(shape, default=0) < 0 or math.prod(shape) != len(content):
            raise PickleError(f"it has an array of {len(content)} bytes that says it has shape {shape!r:.80}")
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _number(written: Any) -> Any:
    if abs(written) > LARGEST:
        raise PickleError("it has a number that is too large for a pixel or a label")
    return written


def _old_string(text: str) -> bytes:
    return text.encode("latin-1")  # Python 2's strings are bytes; pickletools reads them as Latin-1


def _function(name: str) -> _Function:
    if name not in _CALLS:
        raise PickleError(f"it names {name.replace(' ', '.'):.100}, which is no part of a table of numbers. It was not run")
    return _Function(name)


def _named_function(stack: list[Any], items: list[str]) -> None:
    stack.append(_function(" ".join(items)))


def _call(stack: list[Any], items: list[Any]) -> None:
    function, arguments = items
    if not isinstance(function, _Function) or not isinstance(arguments, tuple):
        raise PickleError("it calls what is no function")
    stack.append(_CALLS[function.name](*arguments))


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


def _build(stack: list[Any], items: list[Any]) -> None:
    made, state = items
    if isinstance(made, _Bytes):
        _, shape, kind, fortran, content = state
        made.set(content, kind, shape, "F" if fortran else "C")
    elif not isinstance(made, _ByteType) or state not in made.states:
        raise PickleError("it sets a state that nothing in a table of numbers has")
    stack.append(made)


def _key(key: Any) -> str | bytes:
    if not isinstance(key, str | bytes):
        raise PickleError("it has a key that is no text")
    return key


def _value(made: Any) -> Any:
    if not isinstance(made, _Bytes):
        return made
    if made.array is None:
        raise PickleError("it has an array without values")
    return made.array


def _fill(table: Any, items: list[Any]) -> None:
    if not isinstance(table, dict):
        raise PickleError("it puts keys into what is no table")
    for key, value in zip(items[::2], items[1::2], strict=True):
        table[_key(key)] = _value(value)


def _extend(several: Any, items: list[Any]) -> None:
    if not isinstance(several, list):
        raise PickleError("it appends to what is no list")
    several.extend(_value(item) for item in items)


def _new_table(stack: list[Any], items: list[Any]) -> None:
    stack.append({})
    _fill(stack[-1], items)


def _as_is(value: Any) -> Any:
    return value


Make = Callable[[list[Any], list[Any]], None]
_CONSTANTS: dict[str, Callable[[Any], Any]] = (
    dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _number)
    | dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _old_string)
    | dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _as_is)
    | dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _as_is)
    | {
        "BYTEARRAY8": bytes,
        "NONE": lambda _: None,
        "NEWTRUE": lambda _: True,
        "NEWFALSE": lambda _: False,
        "EMPTY_LIST": lambda _: [],
        "EMPTY_DICT": lambda _: {},
        "EMPTY_TUPLE": lambda _: (),
        "GLOBAL": _function,
    }
)
_MEMORY = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET")
_FROM_MARK: dict[str, Make] = {
    "LIST": lambda stack, items: stack.append([_value(item) for item in items]),
    "TUPLE": lambda stack, items: stack.append(tuple(items)),
    "DICT": _new_table,
    "APPENDS": lambda stack, items: _extend(stack[-1], items),
    "SETITEMS": lambda stack, items: _fill(stack[-1], items),
}
_FROM_STACK: dict[str, tuple[int, Make]] = {
    "APPEND": (1, lambda stack, items: _extend(stack[-1], items)),
    "SETITEM": (2, lambda stack, items: _fill(stack[-1], items)),
    "TUPLE1": (1, lambda stack, items: stack.append(tuple(items))),
    "TUPLE2": (2, lambda stack, items: stack.append(tuple(items))),
    "TUPLE3": (3, lambda stack, items: stack.append(tuple(items))),
    "STACK_GLOBAL": (2, _named_function),
    "REDUCE": (2, _call),
    "BUILD": (2, _build),
}
# numpy's own modules had other names when the files were written
_ARRAYS: dict[str, Callable[..., Any]] = {
    "multiarray _reconstruct": lambda *_: _Bytes(),
    "numeric _frombuffer": _from_buffer,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "_codecs encode": _encode,
    "numpy dtype": _byte_type,
    "numpy ndarray": lambda *_: _Bytes(),
    **{f"numpy.{core}.{name}": call for core in ("core", "_core") for name, call in _ARRAYS.items()},
}
