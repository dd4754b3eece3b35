"""The histogram as small as a word: its height is the count, its lines are the ends of the range."""

import re

import pytest

from quaver.analysis.findings import Spread, TensorStatistics
from quaver.report.sparkline import HEIGHT, WIDTH, sparkline


def tensor(threshold, counts=(0, 9, 99), *, signed=True, start=-1.0, end=1.0):
    numbers = dict.fromkeys(("moving_max", "largest", "smallest", "best_threshold", "zeros", "clipped"), 0.0)
    return TensorStatistics(
        **numbers,
        name="x",
        quantizer="x",
        slot=0,
        rounded=True,
        bits=8,
        signed=signed,
        threshold=threshold,
        percentiles={},
        sqnr_db=None,
        not_finite=0,
        histogram=Spread(start=start, end=end, counts=list(counts)),
    )


def marks(picture):
    """Where lines stand, across."""
    return [float(place) for place in re.findall(r"M([-\d.]+) 0V", picture.threshold_lines)]


@pytest.mark.parametrize(
    ("threshold", "signed", "places"),
    [
        (0.5, True, [0.75 * WIDTH, 0.25 * WIDTH]),
        (0.5, False, [0.75 * WIDTH]),
        (1.5, True, []),
    ],
    ids=["both ends", "the upper end of what cannot be negative", "none where the range is wider than the values"],
)
def test_the_ends_of_the_range_are_lines(threshold, signed, places):
    assert marks(sparkline(tensor(threshold, signed=signed))) == places


def test_more_values_are_higher_and_none_is_the_floor():
    heights = [float(height) for height in re.findall(r"V([\d.]+)h", sparkline(tensor(0.5)).area)]

    assert heights[0] == HEIGHT - 1
    assert heights[0] > heights[1] > heights[2] == 1.0
