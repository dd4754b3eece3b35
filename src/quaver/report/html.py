"""HTML by construction: what is not marked as HTML is text, and is escaped."""

import html
import json
import math
from typing import Any


class Html(str):
    """Text that is HTML already; only functions here make it."""

    __slots__ = ()


VOID = frozenset({"br", "input", "meta", "col"})


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. Children that are not HTML are escaped, None and False leave out a child or an attribute.

    An attribute's underscore is a hyphen, and a trailing one is dropped (``class_``); True gives a bare attribute.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="note", data_x='"')
    '<p class="note" data-x="&quot;">1 &lt; 2 <b>yes</b></p>'
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{words}>")
    return Html(f"<{name}{words}>{join(*children)}</{name}>")


def join(*children: Any) -> Html:
    """Children one after the other; lists and tuples are flattened."""
    return Html("".join(_child(child) for child in children))


def embedded(data: Any) -> Html:
    """JSON for a script element: nothing in it can end the element or open a comment; what is no number is null.

    >>> str(embedded([float("inf"), 1.5]))
    '[null,1.5]'
    """
    text = json.dumps(_with_nulls(data), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)


def _with_nulls(data: Any) -> Any:
    """JSON has no word for NaN and Inf, which a damaged record may hold."""
    if isinstance(data, dict):
        return {key: _with_nulls(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_with_nulls(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _child(child: Any) -> str:
    if child is None or child is False:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, list | tuple):
        return join(*child)
    return html.escape(str(child))


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
