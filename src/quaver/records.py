"""Values from JSON as typed records, checked field by field."""

import json
import math
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NewType, get_args, get_origin, get_type_hints

Figure = NewType("Figure", float)
"""A number that may be NaN or infinite; an integer stays one, so that it is written as it was read."""

_DESCRIPTIONS = {int: "a whole number", str: "a text", bool: "true or false", type(None): "null"}
_SEVERAL = {list: list, tuple: tuple, frozenset: frozenset}
_SIZES = 1 << 63  # what a whole number that counts something lies below


class MisfitError(ValueError):
    """A value is not what its place asks for."""


def decoded(kind: Any, value: Any, place: str = "") -> Any:
    """``value`` from JSON as a ``kind``: a dataclass of these, a list, a dict, a number, a text, or None where allowed."""
    if kind is Any:
        return value
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    if is_dataclass(kind):
        return _record(kind, value, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        (other,) = (option for option in inner if option is not type(None))
        return None if value is None else decoded(other, value, place)
    if origin in _SEVERAL:
        _expect(isinstance(value, list), place, "a list", value)
        return _SEVERAL[origin](decoded(inner[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        _expect(isinstance(value, dict), place, "an object", value)
        return {key: decoded(inner[1], item, f"{place}.{key}") for key, item in value.items()}
    if kind is float or kind is Figure:
        number = isinstance(value, float) or (type(value) is int and abs(value) < _SIZES)
        _expect(number and (kind is Figure or math.isfinite(value)), place, "a finite number", value)
        return value if kind is Figure else float(value)
    _expect(type(value) is kind and (kind is not int or abs(value) < _SIZES), place, _DESCRIPTIONS[kind], value)
    return value


def replace_non_finite(value: Any, stand_in: Callable[[float], Any]) -> Any:
    """``value`` for JSON, which has no word for NaN and infinity: ``stand_in`` says what to write for each of them.

    >>> replace_non_finite({"loss": [1.5, float("inf")]}, str)
    {'loss': [1.5, 'inf']}
    """
    if isinstance(value, dict):
        return {key: replace_non_finite(item, stand_in) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item, stand_in) for item in value]
    return stand_in(value) if isinstance(value, float) and not math.isfinite(value) else value


def _record(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, dict), place, "an object", value)
    names = [field.name for field in fields(kind)]
    newer = [field.name for field in fields(kind) if (field.default, field.default_factory) != (MISSING, MISSING)]
    missing = [name for name in names if name not in value and name not in newer]
    unknown = [name for name in value if name not in names]
    if missing or unknown:
        raise MisfitError(f"{place} " + ("lacks" if missing else "has an unknown field") + f" {(missing or unknown)[0]!r}")
    hints = get_type_hints(kind)
    given = [field.name for field in fields(kind) if field.init and field.name in value]
    return kind(**{name: decoded(hints[name], value[name], f"{place}.{name}".lstrip(".")) for name in given})


def _expect(right: bool, place: str, expected: str, value: Any) -> None:
    if not right:
        raise MisfitError(f"{place or 'the content'} is {json.dumps(value)[:60]}, not {expected}")
