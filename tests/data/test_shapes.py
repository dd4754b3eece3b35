import numpy as np
import pytest
from torch import from_numpy

from quaver.data import open_dataset, write_shapes
from quaver.detection import overlap
from quaver.errors import ConfigError, DataError

SIZE = 48


def shapes(folder, split="train", **options):
    return open_dataset("voc", split, data_dir=write_shapes(folder, train=12, val=4, size=SIZE, **options), image_size=SIZE)


def test_shapes_are_as_large_as_wanted_inside_their_image_and_do_not_touch(tmp_path):
    targets = [target for _, target in map(shapes(tmp_path, sides=(5, 20)).__getitem__, range(12))]

    for boxes, _, difficult in targets:
        assert 1 <= len(boxes) <= 3
        assert not difficult.any()
        assert 0 <= boxes.min() < boxes.max() <= SIZE
        width, height = (boxes[:, 2:] - boxes[:, :2]).T
        assert (width == height).all()
        assert 5 <= width.min() <= width.max() <= 20
        assert (overlap(*[from_numpy(boxes)] * 2).sum(1) == 1).all()  # each with itself alone
    assert {label for target in targets for label in target.labels} == {0, 1, 2}


def test_the_colour_under_a_box_tells_its_class(tmp_path):
    data = shapes(tmp_path)

    for image, target in map(data.__getitem__, range(12)):
        for (left, top, right, bottom), label in zip(target.boxes, target.labels, strict=True):
            middle = image[:, int(top + bottom) // 2, int(left + right) // 2]
            assert middle.argmax() == label


def test_the_same_is_drawn_every_time(tmp_path):
    first, again = shapes(tmp_path / "one"), shapes(tmp_path / "two")

    for index in range(12):
        np.testing.assert_array_equal(first[index][0], again[index][0])


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "label_list.txt").write_text("mine\n")

    for place in (tmp_path, tmp_path / "label_list.txt"):
        with pytest.raises(DataError, match="nothing in it is overwritten"):
            shapes(place)

    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine\n"]


def test_training_and_validation_differ(tmp_path):
    train, val = shapes(tmp_path / "one"), shapes(tmp_path / "two", "val")

    assert (len(train), len(val)) == (12, 4)
    assert not any(np.array_equal(train[k][0], val[n][0]) for k in range(12) for n in range(4))


@pytest.mark.parametrize("options", [{"sides": (5, SIZE)}, {"sides": (9, 8)}, {"sides": (0, 8)}, {"sides": 9}])
def test_sides_that_do_not_fit_are_refused(tmp_path, options):
    with pytest.raises(ConfigError, match="the smallest and the largest side, above 0 and below 48"):
        shapes(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
