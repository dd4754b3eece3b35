"""Check options against rules and report every problem at once, each with the way out."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from quaver.errors import ConfigError

_LARGEST = (1 << 63) - 1
_SHOWN = 200


@dataclass(frozen=True)
class Rule:
    """What an option may be: in words, as a test, and, where it is one of a few, which."""

    description: str
    allows: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


def one_of(*choices: str) -> Rule:
    """Exactly one of these."""
    return Rule(f"one of {', '.join(choices)}", lambda value: value in choices, choices)


class NameIn(Rule):
    """Exactly one of the names in a table, which may grow."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        object.__setattr__(self, "now", lambda: one_of(*table))

    description = property(lambda self: self.now().description)  # type: ignore[assignment]
    allows = property(lambda self: self.now().allows)  # type: ignore[assignment]
    choices = property(lambda self: self.now().choices)  # type: ignore[assignment]


def or_none(rule: Rule) -> Rule:
    """What the rule allows, or None."""
    return Rule(f"None or {rule.description}", lambda value: value is None or rule.allows(value), rule.choices)


def boolean() -> Rule:
    """True or False, nothing that merely behaves like it."""
    return Rule("True or False", lambda value: isinstance(value, bool))


def whole(low: int, high: int | None = None) -> Rule:
    """A whole number within bounds."""
    description = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def allows(value: Any) -> bool:
        return (
            isinstance(value, int) and not isinstance(value, bool) and low <= value <= (_LARGEST if high is None else high)
        )

    return Rule(description, allows)


def rate() -> Rule:
    """A number in [0, 1)."""

    def allows(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1

    return Rule("a number from 0 up to, but not including, 1", allows)


def number(low: float = 0.0, high: float | None = None) -> Rule:
    """A number within bounds, ends included; NaN and infinity are none."""
    description = f"a number of at least {low:g}" if high is None else f"a number from {low:g} to {high:g}"
    most = sys.float_info.max if high is None else high

    def allows(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= most

    return Rule(description, allows)


def text(description: str = "text") -> Rule:
    """A string, which may be empty."""
    return Rule(description, lambda value: isinstance(value, str))


def texts() -> Rule:
    """A string or several."""

    def allows(value: Any) -> bool:
        given = value if isinstance(value, list | tuple) else [value]
        return all(isinstance(item, str) and item for item in given)

    return Rule("a string or a list of strings, none of them empty: that would be in every name", allows)


def names(allowed: Iterable[str]) -> Rule:
    """A list of known names, or one of them."""
    choices = tuple(sorted(allowed))

    def allows(value: Any) -> bool:
        return isinstance(value, str | list | tuple) and all(item in choices for item in several(value))

    return Rule(f"a list of names from {', '.join(choices)}, or one of them", allows, choices)


def several(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names that were given as a list, or one that was given alone.

    >>> several("conv2d"), several(["conv2d", "mul"])
    (('conv2d',), ('conv2d', 'mul'))
    """
    return (given,) if isinstance(given, str) else tuple(given)


def anything() -> Rule:
    """Whatever is given; a function of the user's own is looked at where it is called."""
    return Rule("anything", lambda value: True)


def check(where: str, options: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Raise one `ConfigError` that lists every option that is unknown or has a value it cannot have."""
    wrong = problems(where, options, rules)
    if wrong:
        raise ConfigError("\n".join(wrong))


def problems(where: str, options: Mapping[str, Any], rules: Mapping[str, Rule]) -> list[str]:
    """What is wrong with the options, a line each."""
    wrong = []
    for key, value in options.items():
        if key not in rules:
            wrong.append(f"{where}: has no key {shown(key)}.{nearest(key, rules)} Known keys: {', '.join(sorted(rules))}.")
        elif not rules[key].allows(value):
            hint = _nearest_value(value, rules[key])
            wrong.append(f"{where}: {key}={shown(value)}: takes {rules[key].description}.{hint}")
    return wrong


def shown(value: Any) -> str:
    """A value as it is written in Python, the beginning of it if it is long."""
    written = repr(value)
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}…"


def nearest(word: str, choices: Iterable[str]) -> str:
    """`` Did you mean 'x'?``, or those that are equally near, or nothing.

    >>> nearest("conv", ["conv1d", "conv2d", "pool2d"])
    " Did you mean 'conv1d' or 'conv2d'?"
    """
    given = str(word)[:_SHOWN]
    close = get_close_matches(given, list(choices), n=3)
    likeness = [SequenceMatcher(None, choice, given).ratio() for choice in close]
    alike = sorted(choice for choice, ratio in zip(close, likeness, strict=True) if ratio == likeness[0])
    return f" Did you mean {' or '.join(map(repr, alike))}?" if alike else ""


def _nearest_value(value: Any, rule: Rule) -> str:
    wrong = [item for item in (value if isinstance(value, list | tuple) else [value]) if isinstance(item, str)]
    return "".join(nearest(item, rule.choices) for item in wrong if item not in rule.choices)
