"""How a pattern of a config finds ops: by a part of their scope."""

import warnings
from collections.abc import Iterable

from quaver.checking import nearest
from quaver.errors import QuaverWarning

CUSTOMARY = "skip_quant"
"""A pattern for any model, whether or not it has such a scope."""


def contains(scope: str, pattern: str) -> bool:
    """Whether a scope contains a pattern, in which ``^`` and ``$`` stand for the scope's two ends.

    >>> contains("features.12", "2"), contains("features.12", "^2$"), contains("2", "^2$")
    (True, False, True)
    """
    return pattern in f"^{scope}$"


def first_in(scope: str, patterns: str | Iterable[str]) -> str | None:
    """The first of the patterns that a scope contains, if it contains one."""
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if contains(scope, pattern):
            return pattern
    return None


def warn_of_unmatched(option: str, patterns: Iterable[str], scopes: Iterable[str], stacklevel: int) -> None:
    """Say which patterns of an option are in no scope, with the nearest name: most are misspelt."""
    scopes = set(scopes)
    for pattern in patterns:
        if pattern != CUSTOMARY and not any(contains(scope, pattern) for scope in scopes):
            names = scopes | {part for scope in scopes for part in scope.split(".")}
            warnings.warn(
                f"{option}: {pattern!r} is in no layer's name, so it changes nothing.{nearest(pattern.strip('^$'), names)}",
                QuaverWarning,
                stacklevel=stacklevel + 1,
            )
