"""Records as JSON and back; what is read is checked field by field."""

import json
import math
import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from quaver.errors import StorageError
from quaver.files import write_atomically


class MisfitError(ValueError):
    """A value is not what its place asks for."""


def write(path: Path, content: dict[str, Any]) -> None:
    """Put the content at ``path`` in one step."""
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (text + "\n").encode())
    except (OSError, ValueError) as error:  # ValueError: a figure is NaN or Inf, which JSON does not have
        raise StorageError(f"{path}: the analysis could not be written: {error}.") from error


def decoded(kind: Any, value: Any, place: str) -> Any:
    """``value`` from JSON as a ``kind``: a dataclass of these, a list, a dict, a number, a text, or None where allowed."""
    if is_dataclass(kind):
        return _record(kind, value, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        (other,) = (one for one in inner if one is not type(None))
        return None if value is None else decoded(other, value, place)
    if origin is list:
        _expect(isinstance(value, list), place, "a list", value)
        return [decoded(inner[0], item, f"{place}[{index}]") for index, item in enumerate(value)]
    if origin is dict:
        _expect(isinstance(value, dict), place, "an object", value)
        return {key: decoded(inner[1], item, f"{place}.{key}") for key, item in value.items()}
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        _expect(number, place, "a finite number", value)
        return float(value)
    _expect(type(value) is kind, place, {int: "a whole number", str: "a text", bool: "true or false"}[kind], value)
    return value


def _record(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, dict), place, "an object", value)
    names = [field.name for field in fields(kind)]
    newer = [field.name for field in fields(kind) if (field.default, field.default_factory) != (MISSING, MISSING)]
    missing = [name for name in names if name not in value and name not in newer]
    unknown = [name for name in value if name not in names]
    if missing or unknown:
        raise MisfitError(f"{place} " + ("lacks" if missing else "has an unknown field") + f" {(missing or unknown)[0]!r}")
    hints = get_type_hints(kind)
    return kind(**{name: decoded(hints[name], value[name], f"{place}.{name}".lstrip(".")) for name in value})


def _expect(right: bool, place: str, words: str, value: Any) -> None:
    if not right:
        raise MisfitError(f"{place or 'the content'} is {json.dumps(value)[:60]}, not {words}")
