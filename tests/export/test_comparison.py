"""What a comparison counts, though it looks only where tensors differ."""

import numpy as np
import pytest

from quaver.export.comparison import _Counts, _excess, distances
from quaver.export.integers import Rounded, _whole

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.3]


def tensors(seed, special):
    """The simulation's integers, the engine's, and what follows from the engine's in front; a few of each are others."""
    random = np.random.default_rng(seed)
    ours = random.integers(-128, 128, (3, 5, 7)).astype(np.float32)
    steps = ours + random.uniform(-0.6, 0.6, ours.shape).astype(np.float32)
    theirs = ours.copy()
    theirs.ravel()[random.integers(0, ours.size, 9)] += random.integers(-2, 3, 9)
    if special:
        for values in (ours, theirs, steps):
            values.ravel()[random.integers(0, ours.size, 6)] = SPECIAL
    return ours, theirs, Rounded(np.rint(steps), steps)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_it_counts_what_the_whole_tensors_say(seed, special):
    ours, theirs, behind = tensors(seed, special)
    distance = distances(ours, theirs)
    on_grid = theirs == np.rint(theirs)
    off = np.where(
        on_grid,
        np.maximum(distances(behind.steps, theirs) - 0.5, np.finfo(np.float32).tiny),
        distances(behind.integers, theirs),
    )
    off = np.where((ours == theirs) | (behind.integers == theirs), 0.0, off)

    counts = _Counts()
    counts.add(ours, theirs, _excess(ours, behind, theirs), allowed=0.1, step=2.0)

    assert counts.size == ours.size
    assert counts.differ == int((distance > 0).sum())
    assert counts.largest == distance.max() / 2.0
    assert counts.beyond == int((off > 0.1).sum())
    assert counts.farthest == off.max()
    assert counts.not_finite == int((~(np.isfinite(ours) & np.isfinite(theirs))).sum())


def test_equal_tensors_may_hold_infinities():
    values = np.array([np.inf, 1.0], np.float32)

    counts = _Counts()
    counts.add(values, values.copy())

    assert (counts.differ, counts.not_finite) == (0, 1)


def test_values_in_steps_are_whole_but_for_what_is_on_no_grid():
    scale = np.float32(0.1)
    values = np.array([[0.1, -12.8, 0.25, np.nan]], np.float32)

    np.testing.assert_array_equal(_whole(values, scale), np.array([[1, -128, values[0, 2] / scale, np.nan]], np.float32))
