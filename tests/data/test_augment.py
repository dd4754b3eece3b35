import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from quaver.data.augment import crop_box, random_crop, shifted

IMAGES = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4) + 1
MIDDLE, LAST = 0.5, 0.999


def test_a_shift_moves_an_image_and_fills_what_is_left():
    draws = np.array([[0.0, MIDDLE, LAST], [LAST, LAST, LAST]])

    moved = shifted(IMAGES, draws, pad=1, flip=True, fill=7)

    assert np.array_equal(moved[0, :, 1:], IMAGES[0, :, :-1])  # down by one
    assert (moved[0, :, 0] == 7).all()
    assert np.array_equal(moved[1, :, :-1, :-1], IMAGES[1, :, 1:, 1:])  # up and left
    assert moved.dtype == np.uint8


def test_an_image_is_mirrored_only_where_it_may_be():
    draws = np.array([[MIDDLE, MIDDLE, 0.1], [MIDDLE, MIDDLE, LAST]])

    assert np.array_equal(shifted(IMAGES, draws, pad=1, flip=True), [IMAGES[0, :, :, ::-1], IMAGES[1]])
    assert np.array_equal(shifted(IMAGES, draws, pad=1, flip=False), IMAGES)


@given(
    size=st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=5),
)
def test_a_crop_lies_within_the_image_and_is_not_too_small(size, draws):
    left, top, right, bottom = crop_box(size, np.array(draws))

    assert left >= 0
    assert top >= 0
    assert right <= size[0] * (1 + 1e-12)
    assert bottom <= size[1] * (1 + 1e-12)
    assert right - left > 0.99
    assert bottom - top > 0.99


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.08), (LAST, 0.75)])
def test_a_square_image_is_cut_to_the_smallest_share_or_to_what_the_ratio_allows(draw, share):
    left, top, right, bottom = crop_box((400, 400), np.array([0.0, draw, 0, 0, 0]))

    assert (right - left) * (bottom - top) / 400**2 == pytest.approx(share, rel=0.01)
    assert (right - left) / (bottom - top) == pytest.approx(3 / 4)


def test_a_crop_is_scaled_and_mirrored():
    image = Image.fromarray(np.tile(np.arange(0, 200, 2, dtype=np.uint8), (100, 1)))

    plain, mirrored = (np.asarray(random_crop(image, np.array([0.5, 0.5, 0.5, 0.5, flip]), 32)) for flip in (LAST, 0.1))

    assert plain.shape == (32, 32)
    assert (np.diff(plain[0].astype(int)) >= 0).all()
    assert np.array_equal(mirrored, plain[:, ::-1])
