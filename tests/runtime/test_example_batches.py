"""Random inputs for a file, as it takes them."""

import numpy as np

from quaver.runtime.example_batches import random_batch
from quaver.runtime.runner import Input


def test_a_file_that_takes_images_as_bytes_is_given_random_ones_and_whole_numbers_are_zeros():
    ports = [Input("image", (None, 4, 4, 3), np.dtype(np.uint8)), Input("place", (None, 4), np.dtype(np.int64))]

    image, place = random_batch(ports, 2)

    assert (image.shape, image.dtype) == ((2, 4, 4, 3), np.uint8)
    assert len(np.unique(image)) > 50
    assert not place.any()
