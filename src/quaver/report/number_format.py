"""Numbers formatted for people: percent, bytes, milliseconds, decibels."""

import sys
from dataclasses import dataclass

MINUS = "\u2212"


@dataclass(frozen=True)
class Styled:
    """A text, and the class of the style sheet that colours it."""

    text: str
    style: str


def change(text: str, *, more_is_better: bool = True) -> Styled:
    """A difference whose text begins with its sign: better, worse or the same."""
    return Styled(text, "same" if text[0] == "±" else "better" if (text[0] == "+") == more_is_better else "worse")


def signed(value: float, digits: int) -> str:
    """A difference, with its sign.

    >>> signed(0.51, 1), signed(-0.04, 1)
    ('+0.5', '±0.0')
    """
    rounded = round(value, digits)
    return f"{'±' if rounded == 0 else '+' if rounded > 0 else MINUS}{abs(rounded):.{digits}f}"


def percent(value: float | None, digits: int = 2) -> str:
    """A share in percent; what is not all is not called 100."""
    if value is None:
        return ""
    nearly = value < 1 and round(value, digits + 2) == 1
    return f">\u202f{100 - 10**-digits:.{digits}f}\u202f%" if nearly else f"{100 * value:.{digits}f}\u202f%"


def points(value: float) -> str:
    """A difference of shares, in percentage points, with its sign.

    >>> points(-0.0012), points(0.0)
    ('−0.12', '±0.00')
    """
    return signed(100 * value, 2)


def size(count: float | None) -> str:
    """Bytes."""
    if count is None:
        return ""
    return f"{count / 1024:,.0f}\u202fKiB" if count < 2**20 else f"{count / 2**20:,.1f}\u202fMiB"


def milliseconds(value: float | None) -> str:
    """A duration, in three digits."""
    if value is None:
        return ""
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}\u202fms"


def times(value: float) -> str:
    """A factor.

    >>> times(2.08)
    '2.1×'
    """
    return f"{value:.1f}×"


def number(value: float | None, digits: int = 3) -> str:
    """A number in a few significant digits, plainly written where that is short.

    >>> number(3.14159), number(0.00001234), number(None), number(float("inf"))
    ('3.14', '1.23e−5', '', 'inf')
    """
    if value is None:
        return ""
    if not abs(value) <= sys.float_info.max:  # also of an integer that no float holds
        return "nan" if value != value else "inf" if value > 0 else f"{MINUS}inf"
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    text = f"{value:#.{digits}g}".removesuffix(".") if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", MINUS)


def decibels(value: float | None) -> str:
    """Signal to noise."""
    return "" if value is None else f"{value:.1f}".replace("-", MINUS)
