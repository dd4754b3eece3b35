"""Ways to damage a file: by its bytes, and by the values in it."""

import copy
import json
from random import Random
from typing import Any

NAN, INF = float("nan"), float("inf")


def nested(depth: int, inner: Any = 0) -> Any:
    """A list in a list in a list."""
    for _ in range(depth):
        inner = [inner]
    return inner


SMALL = [None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.5, "", "x", "0", "é", [], {}, [0], [None], {"x": 0}, [[]], "nan"]
LARGE = [2**31, 2**40, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400, 1e308, -1e308, NAN, INF, -INF, 1e-320]
ODD = ["\ud800", "\0", "../../x", "/dev/zero", "x" * 5000, "a.b.c", "-", nested(60), nested(150), list(range(300))]


def changed_bytes(random: Random, content: bytes) -> bytes:
    """A few bits flipped, bytes replaced, cut off, doubled, put in or taken out."""
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        content = _CHANGES[random.randrange(len(_CHANGES))](random, content)
    return content


def _flip(random: Random, content: bytes) -> bytes:
    if not content:
        return b"\0"
    at = _place(random, content)
    return content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :]


def _replace(random: Random, content: bytes) -> bytes:
    at = _place(random, content)
    size = random.choice([1, 2, 4, 8])
    new = random.choice([b"\0" * size, b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), random.randbytes(size)])
    return content[:at] + new + content[at + size :]


def _cut_off(random: Random, content: bytes) -> bytes:
    return content[: _place(random, content)]


def _take_out(random: Random, content: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + content[at + random.choice([1, 3, 10, 100]) :]


def _put_in(random: Random, content: bytes) -> bytes:
    at = _place(random, content)
    piece = content[at : at + random.choice([1, 4, 50])] * random.choice([1, 2, 50])
    return content[:at] + random.choice([piece, random.randbytes(5), b"\0" * 40, b"9" * 25]) + content[at:]


def _place(random: Random, content: bytes) -> int:
    """Anywhere, but half the time near the beginning, where a file says what it is."""
    return min(random.randrange(max(len(content), 1)), random.choice([1 << 60, 256]))


_CHANGES = (_flip, _flip, _replace, _cut_off, _take_out, _put_in)


def changed_value(random: Random, value: Any) -> Any:
    """A copy of a tree of lists and dicts in which one or a few values are others, gone, doubled or exchanged."""
    value = copy.deepcopy(value)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        value = _change(random, value)
    return value


def _change(random: Random, value: Any) -> Any:
    places = list(_places(value))
    if not places:
        return random.choice(SMALL)
    # one level after the other, so that a long list does not drown the few values that say what it is
    depth = random.choice(sorted({len(path) for path in places}))
    path = random.choice([path for path in places if len(path) == depth])
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    key = path[-1]
    how = random.random()
    if how < 0.55:
        owner[key] = _another(random, owner[key])
    elif how < 0.7:
        del owner[key]
    elif how < 0.8 and isinstance(owner, list):
        owner.insert(random.randrange(len(owner) + 1), copy.deepcopy(owner[key]))
    elif how < 0.9 and isinstance(owner, dict):
        owner[random.choice(["x", "", f"{key}x", "é", "\ud800"])] = owner.pop(key)
    else:
        source: Any = value
        for step in random.choice(places):
            source = source[step]
        owner[key] = copy.deepcopy(source)
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    waiting = [(value, path)]
    while waiting:
        item, here = waiting.pop()
        steps = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, inner in steps:
            yield (*here, key)
            waiting.append((inner, (*here, key)))


def _another(random: Random, old: Any) -> Any:
    if isinstance(old, int | float) and not isinstance(old, bool) and random.random() < 0.5:
        return random.choice(
            [old + 1, old - 1, -old, old * 1000, old * 2**32, old / 3 if abs(old) < 1e300 else 0.5, str(old), bool(old)]
        )
    if isinstance(old, str) and random.random() < 0.4:
        at = random.randrange(len(old) + 1)
        return random.choice([old[:at], old[at:], old + "_", old[:at] + "." + old[at:], old.upper(), [old], old * 3])
    return copy.deepcopy(random.choice(random.choice([SMALL, SMALL, LARGE, ODD])))


def as_json(value: Any, **options: Any) -> str:
    """JSON of a value that may hold numbers too long for Python's own limit."""
    return json.dumps(value, **options)
