"""Images of bytes in another size: exact, so that no engine can give another byte."""

import numpy as np
import torch

from quaver.image_scaling import STEPS, neighbours, scaled


def test_the_same_size_changes_nothing():
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3)).astype(np.uint8)

    assert np.array_equal(scaled(images, (5, 7)), images)


def test_it_is_bilinear_with_centres_on_centres_but_for_weights_of_seven_bits():
    images = np.random.default_rng(0).integers(0, 256, (2, 48, 64, 3)).astype(np.uint8)

    got = scaled(images, (30, 90)).astype(np.float32)

    planes = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    wanted = torch.nn.functional.interpolate(planes, (30, 90), mode="bilinear", align_corners=False)
    # a weight is off by 1/256 at most, along each axis, and the result is rounded
    assert np.abs(got - wanted.permute(0, 2, 3, 1).numpy()).max() <= 2 * 255 / (2 * STEPS) + 0.5


def test_sums_are_exact_in_float32():
    images = np.random.default_rng(0).integers(0, 256, (1, 11, 13, 1)).astype(np.uint8)
    rows, columns = neighbours(11, 29), neighbours(13, 31)

    whole = images.astype(np.int64)
    for near, axis in ((rows, 1), (columns, 2)):
        share = (near.share * STEPS).astype(np.int64).reshape(-1, *[1] * (3 - axis))
        whole = whole.take(near.first, axis) * (STEPS - share) + whole.take(near.second, axis) * share

    assert np.array_equal(scaled(images, (29, 31)), np.rint(whole / STEPS**2).astype(np.uint8))
    assert whole.max() < 2**24
