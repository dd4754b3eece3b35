import numpy as np
import pytest
import torch

from quaver.data import ImageData, Target
from quaver.detection import fitted_anchors
from quaver.detection.anchors import published_anchors, shape_overlap
from quaver.errors import DataError

SIZE = 64
KINDS = [
    (4.0, 6.0),
    (8.0, 8.0),
    (12.0, 6.0),
    (9.0, 20.0),
    (20.0, 20.0),
    (30.0, 16.0),
    (24.0, 40.0),
    (44.0, 44.0),
    (60.0, 50.0),
]


class Boxes(ImageData):
    """A data set of objects of given sizes, one in each image."""

    def __init__(self, sizes):
        super().__init__(classes=1, image_shape=(3, SIZE, SIZE), augment=False, seed=0)
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def batch(self, indices):
        targets = [Target(np.array([[0, 0, *self.sizes[k]]], np.float32), np.array([0]), np.array([False])) for k in indices]
        return torch.zeros(len(indices), *self.image_shape), targets


def test_where_objects_have_nine_sizes_these_are_the_anchors_the_smallest_first():
    anchors = fitted_anchors(Boxes(KINDS[::-1] * 5))

    assert sum(anchors, ()) == tuple(sorted(KINDS, key=lambda size: size[0] * size[1]))


def test_objects_are_more_like_fitted_anchors_than_like_the_published():
    chance = np.random.default_rng(0)
    sizes = chance.uniform(6, 32, (300, 1)) * chance.uniform(0.8, 1.25, (300, 2))

    fitted, published = (
        shape_overlap(torch.tensor(sizes), torch.tensor(sum(anchors, ()))).amax(1).mean()
        for anchors in (fitted_anchors(Boxes(sizes)), published_anchors(SIZE))
    )

    assert fitted > 0.8 > published


def test_every_anchor_is_the_mean_of_the_objects_that_it_is_most_like():
    chance = np.random.default_rng(1)
    sizes = torch.tensor(chance.uniform(6, 60, (200, 2)), dtype=torch.float32)

    anchors = torch.tensor(sum(fitted_anchors(Boxes(sizes.numpy())), ()))

    nearest = shape_overlap(sizes, anchors).argmax(1)
    means = torch.stack([sizes[nearest == number].mean(0) for number in range(9)])
    torch.testing.assert_close(anchors, means)


def test_fewer_objects_than_anchors_are_enough():
    assert fitted_anchors(Boxes(KINDS[:2])) == ((KINDS[0],) * 3, (KINDS[0],) * 3, (KINDS[0],) * 2 + (KINDS[1],))


def test_only_as_many_images_are_looked_at_as_one_wants():
    assert set(sum(fitted_anchors(Boxes([(10, 10), (50, 50), (20, 20)]), images=2), ())) == {(10, 10), (20, 20)}


def test_data_without_an_object_is_refused():
    class Empty(Boxes):
        def batch(self, indices):
            images, _ = super().batch(indices)
            return images, [Target(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, bool)) for _ in indices]

    with pytest.raises(DataError, match="no object in the 9 images"):
        fitted_anchors(Empty(KINDS))
