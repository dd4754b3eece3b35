from dataclasses import FrozenInstanceError

import pytest

from quaver.errors import ConfigError
from quaver.grid import BITS, Grid, asymmetric_grid


@pytest.mark.parametrize(("bits", "high"), [(2, 1), (3, 3), (4, 7), (5, 15), (6, 31), (7, 63), (8, 127)])
def test_a_signed_grid_is_symmetric_and_leaves_the_lowest_integer_out(bits, high):
    grid = Grid(bits)

    assert (grid.low, grid.high) == (-high, high)


@pytest.mark.parametrize(("bits", "high"), [(2, 3), (3, 7), (4, 15), (5, 31), (6, 63), (7, 127), (8, 255)])
def test_an_unsigned_grid_starts_at_zero_and_uses_every_integer(bits, high):
    grid = Grid(bits, signed=False)

    assert (grid.low, grid.high) == (0, high)


def test_a_grid_takes_2_to_8_bits():
    assert list(BITS) == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("bits", [1, 0, -8, 9, 16, True, False, 8.0, "8", None])
def test_other_bits_are_refused_with_the_value_and_the_choice(bits):
    with pytest.raises(ConfigError, match=rf"^bits={bits!r}: a quantizer takes 2 to 8 bits\.$"):
        Grid(bits)


def test_a_grid_is_8_bit_and_signed_unless_told_otherwise():
    assert Grid() == Grid(8, signed=True) != Grid(8, signed=False)


def test_a_grid_cannot_be_changed():
    grid = Grid(8)

    with pytest.raises(FrozenInstanceError, match="bits"):
        grid.bits = 4


@pytest.mark.parametrize("zero_point", [0, 128, "20", None])
def test_an_asymmetric_grid_has_some_integers_below_zero_and_more_above(zero_point):
    assert (asymmetric_grid(127).low, asymmetric_grid(1).high) == (-127, 254)
    with pytest.raises(ConfigError, match="takes 1 to 127"):
        asymmetric_grid(zero_point)
