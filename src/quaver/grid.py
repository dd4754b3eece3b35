"""What "8-bit" means: the set of integers a tensor is rounded onto."""

from dataclasses import dataclass, field

from quaver.errors import ConfigError

BITS = range(2, 9)
BYTE = 8


@dataclass(frozen=True)
class Grid:
    """The integers ``low … high``, evenly spaced, with zero always among them; a threshold lies exactly on ``high``.

    A signed grid is symmetric (−127 … 127 at 8 bits: −128 is left out, so that a tensor and its negative round alike).
    With ``narrow=False`` it is the grid of an engine's activations: the whole two's complement range (−128 … 127), and a
    step of 16 significant bits (see `quaver.quantizers.arithmetic.scale_of`). An unsigned grid spends all its integers on
    what is not negative (0 … 255), for tensors behind a ReLU. ``bounds`` keeps to some of the integers: a user's own
    quantizer may leave out the smallest, or stop before the largest. For a tensor that hardly goes below zero they may be
    256 others (−20 … 235): the grid is then asymmetric.

    >>> Grid(8).high, Grid(8, signed=False).high, Grid(4).low, Grid(4, narrow=False).low
    (127, 255, -7, -8)
    """

    bits: int = 8
    signed: bool = True
    narrow: bool = True
    bounds: tuple[int, int] | None = None
    low: int = field(init=False, repr=False, compare=False)
    high: int = field(init=False, repr=False, compare=False)

    @property
    def is_asymmetric(self) -> bool:
        """Whether a signed grid reaches further up than integers of one byte do."""
        return self.signed and self.high > 127

    @property
    def zero_point(self) -> int:
        """What engines add to the integers of a signed grid to store them from 0 on."""
        return -self.low if self.is_asymmetric else 128

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or isinstance(self.bits, bool) or self.bits not in BITS:
            raise ConfigError(f"bits={self.bits!r}: a quantizer takes {BITS[0]} to {BITS[-1]} bits.")
        high = (1 << (self.bits - 1 if self.signed else self.bits)) - 1
        low = 0 if not self.signed else -high if self.narrow else -high - 1
        for name, end in zip(("low", "high"), self.bounds or (low, high), strict=True):
            object.__setattr__(self, name, end)


def asymmetric_grid(zero_point: int) -> Grid:
    """The 256 integers of which so many are negative.

    >>> asymmetric_grid(20).low, asymmetric_grid(20).high
    (-20, 235)
    """
    if not isinstance(zero_point, int) or not 0 < zero_point < 128:
        raise ConfigError(f"zero_point={zero_point!r}: an asymmetric grid takes 1 to 127.")
    return Grid(BYTE, narrow=False, bounds=(-zero_point, 255 - zero_point))
