import numpy as np
import pytest

from quaver.measure.output_agreement import OutputCounts, unit_of


def floats(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("output", "task", "unit"),
    [
        (floats(4, 10), None, "images"),
        (floats(4, 10), "embedding", "values"),
        (floats(4, 1), None, "values"),  # one number per image: nothing to choose from
        (floats(4, 21, 8, 8), None, "pixels"),
        (floats(4, 21, 8, 8), "detection", "values"),
        (floats(4, 21, 8, 8), "classification", "values"),  # a feature map beside the scores
        (floats(4, 3, 8, 8), None, "values"),  # an RGB picture
        (floats(4, 3, 8, 8), "segmentation", "pixels"),
        (floats(4, 84, 100), None, "values"),  # boxes
        (np.zeros((4, 10), np.int64), None, "values"),
        (np.float32(1.0).reshape(()), None, "values"),
    ],
    ids=lambda value: "x".join(map(str, value.shape)) if isinstance(value, np.ndarray) else str(value),
)
def test_an_output_is_counted_in_what_it_holds(output, task, unit):
    assert unit_of(output, task) == unit


def counted(unit, *pairs):
    counts = OutputCounts("output", unit)
    for ours, theirs in pairs:
        counts.add(ours, theirs)
    return counts.result()


def test_images_and_pixels_agree_in_their_class():
    ours = np.array([[1.0, 2.0], [5.0, 4.0]], np.float32)
    theirs = np.array([[1.0, 9.0], [3.0, 4.0]], np.float32)

    assert (counted("images", (ours, theirs)).agreeing, counted("images", (ours, theirs)).counted) == (1, 2)
    maps = floats(2, 5, 4, 4)
    other = maps.copy()
    other[1, :, 2, 3] = -other[1, :, 2, 3]
    pixels = counted("pixels", (maps, maps), (maps, other))
    assert (pixels.agreeing, pixels.counted) == (63, 64)
    assert pixels.words() == "98.4375% of 64 pixels have the same class"


def test_values_are_held_to_the_scale_of_their_own_channel():
    """A detector's box is in hundreds of pixels, its scores are below one: a score that is 0.5 off must not pass."""
    boxes = np.stack([np.full(8, 400.0), np.linspace(0, 1, 8)])[None].astype(np.float32)
    box_off, score_off = boxes.copy(), boxes.copy()
    box_off[0, 0, 3] += 2  # below 400 / 127
    score_off[0, 1, 3] += 0.5

    assert counted("values", (boxes, box_off)).agreement == 1
    assert counted("values", (boxes, score_off)).agreement == 15 / 16


def test_whole_numbers_agree_where_they_are_equal():
    assert counted("values", (np.array([[1000, 7]]), np.array([[1000, 8]]))).agreement == 0.5


def test_the_relative_error_is_over_all_batches():
    ours, theirs = np.array([3.0, 0.0], np.float32), np.array([3.0, 4.0], np.float32)
    other = np.array([0.0, 4.0], np.float32)

    assert counted("values", (ours, theirs)).relative_error == pytest.approx(4 / 3)
    assert counted("values", (ours, theirs), (other, other)).relative_error == pytest.approx(4 / 5)
    assert counted("values", (ours * 0, ours * 0)).relative_error == 0


def test_nothing_agrees_with_nan():
    bad = np.array([[1.0, np.nan]], np.float32)

    assert counted("values", (np.ones((1, 2), np.float32), bad)).agreement == 0.5


def test_a_single_number_has_an_agreement():
    assert counted("values", (np.float32(2.0).reshape(()), np.float32(2.0).reshape(()))).agreement == 1
