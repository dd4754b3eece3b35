import os
from contextlib import contextmanager

import numpy as np
import pytest

from quaver.data.binary import BinaryWriter, load_binary
from quaver.errors import DataError

IMAGE = np.ones((3, 4, 4), np.float32)


def writer(path, **options):
    return BinaryWriter(path, **({"image_shape": (3, 4, 4), "classes": 10, "layout": "header"} | options))


def write(path, labels):
    with writer(path) as new:
        for label in labels:
            new.add(IMAGE, label)


@contextmanager
def files_of_at_most(size):
    """As if the disk were full after ``size`` bytes. Python ignores the signal that comes with it: a write just fails."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "data.bin").write_bytes(b"old")
    return tmp_path / "data.bin"


def assert_untouched(path):
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_the_file_is_the_old_one_until_the_new_one_is_whole(path):
    with writer(path) as new:
        for label in range(10):
            new.add(IMAGE, label)
            assert path.read_bytes() == b"old"

    assert load_binary(path).labels.tolist() == list(range(10))


def test_an_error_on_the_way_leaves_the_old_file(path):
    def labels():
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(path, labels())

    assert_untouched(path)


def test_a_file_without_images_is_not_written(path):
    with pytest.raises(DataError, match="no image was given"), writer(path):
        pass

    assert_untouched(path)


@pytest.mark.parametrize("label", [-1, 10, 2**70])
def test_a_label_that_no_class_has_is_refused(path, label):
    with pytest.raises(DataError, match=rf"image 1 has label {label}, outside 0\.\.9"):
        write(path, [9, label])

    assert_untouched(path)


@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 4, 3), (48,), (1, 3, 4, 4)])
def test_an_image_of_another_shape_is_refused(path, shape):
    with pytest.raises(DataError, match=r"has shape .* not \(3, 4, 4\)"), writer(path) as new:
        new.add(np.zeros(shape, np.float32), 0)

    assert_untouched(path)


def test_images_of_other_types_and_orders_are_written_as_float32(path):
    values = np.arange(48).reshape(4, 4, 3)

    with writer(path) as new:
        new.add(values.transpose(2, 0, 1), 0)
        new.add(values.astype(np.float64).transpose(2, 0, 1), 0)
        new.add(values.astype(">f4").transpose(2, 0, 1), 0)

    read = load_binary(path).images_nchw
    assert all(np.array_equal(image, values.transpose(2, 0, 1)) for image in read)


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "reference"},
        {"layout": "reference", "image_shape": (1, 224, 224)},
        {"layout": "reference", "image_shape": (3, 224, 224), "classes": 1001},
    ],
)
def test_the_reference_layout_takes_only_its_own_shape_and_classes(path, options):
    with pytest.raises(DataError, match=r"3x224x224 in at most 1000 classes, not .* Use the header layout"):
        writer(path, **options)


@pytest.mark.parametrize("options", [{"classes": 0}, {"image_shape": (3, 0, 4)}, {"image_shape": (-3, -4, 4)}])
def test_numbers_below_1_are_refused(path, options):
    with pytest.raises(DataError, match="at least 1"):
        writer(path, **options)


# in the middle of an image, between images, in the labels
@pytest.mark.parametrize("size", [100_000, 48 + 500 * IMAGE.nbytes, 48 + 1000 * IMAGE.nbytes + 5])
def test_a_full_disk_is_an_error_that_says_so_and_leaves_the_old_file(path, size):
    with files_of_at_most(size), pytest.raises(DataError, match=r"data\.bin: could not be written: .*untouched"):
        write(path, [0] * 1000)

    assert_untouched(path)


def test_two_writers_of_one_file_do_not_mix(path):
    with writer(path) as first:
        first.add(IMAGE, 1)
        with pytest.raises(DataError, match="another process is writing this file"), writer(path):
            pass
        first.add(IMAGE, 2)

    assert load_binary(path).labels.tolist() == [1, 2]


def test_folders_on_the_way_are_made(tmp_path):
    with writer(tmp_path / "a" / "b" / "data.bin") as new:
        new.add(IMAGE, 1)

    assert len(load_binary(tmp_path / "a" / "b" / "data.bin")) == 1


def test_a_place_that_cannot_be_written_is_an_error_that_says_so(path):
    with pytest.raises(DataError, match="could not be written"), writer(path / "below.bin"):
        pass
