import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.data.binary import BinaryWriter, load_binary
from quaver.errors import ConfigError, DataError

LAW = settings(max_examples=60, derandomize=True)
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))


def write(path, images, labels, classes=1000, layout="header"):
    with BinaryWriter(path, image_shape=images.shape[1:], classes=classes, layout=layout) as writer:
        for image, label in zip(images, labels, strict=True):
            writer.add(image, label)


def noise(count, shape=(2, 3, 4)):
    return np.random.default_rng(0).standard_normal((count, *shape)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("binary") / "data.bin"


@LAW
@given(count=st.integers(1, 9), shape=SHAPES, classes=st.integers(1, 2**62), batch_size=st.integers(1, 10), data=st.data())
def test_what_is_written_is_read_again_bit_for_bit(path, count, shape, classes, batch_size, data):
    bits = data.draw(st.binary(min_size=4 * count * int(np.prod(shape)), max_size=4 * count * int(np.prod(shape))))
    images = np.frombuffer(bits, "<f4").reshape(count, *shape)
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))

    write(path, images, labels, classes)
    read = load_binary(path)
    batches = list(read.batches(batch_size))

    assert (len(read), read.image_shape, read.classes, read.layout) == (count, shape, classes, "header")
    assert np.concatenate([batch for batch, _ in batches]).tobytes() == bits
    assert np.concatenate([batch for _, batch in batches]).tolist() == labels
    assert [len(batch) for batch, _ in batches[:-1]] == [batch_size] * (len(batches) - 1)


def test_the_header_layout_is_the_bytes_it_is_said_to_be(path):
    write(path, noise(2, (1, 2, 2)), [3, 0], classes=4)

    numbers = b"".join(number.to_bytes(8, "little") for number in (2, 1, 2, 2, 4))
    labels = b"".join(number.to_bytes(8, "little") for number in (3, 0))
    assert path.read_bytes() == b"QUAVERB1" + numbers + noise(2, (1, 2, 2)).astype("<f4").tobytes() + labels


def test_the_reference_layout_is_the_bytes_it_is_said_to_be(path):
    images = noise(2, (3, 224, 224))

    write(path, images, [999, 0], layout="reference")

    assert path.read_bytes() == b"\2" + bytes(7) + images.astype("<f4").tobytes() + b"\xe7\3" + bytes(6) + bytes(8)
    read = load_binary(path)
    assert (len(read), read.image_shape, read.classes, read.layout) == (2, (3, 224, 224), 1000, "reference")
    assert np.array_equal(read.images_nchw, images)
    assert read.labels.tolist() == [999, 0]


def test_batches_are_plain_arrays_that_an_engine_takes(path):
    write(path, noise(3), [0, 1, 2])  # an odd number of values would put the labels where int64 does not like to stand

    for images, labels in load_binary(path).batches(2):
        assert type(images) is np.ndarray
        assert images.flags.c_contiguous
        assert images.flags.writeable
        assert images.flags.aligned
        assert labels.flags.aligned


@pytest.mark.slow
def test_opening_a_file_reads_none_of_its_images(tmp_path):
    path = tmp_path / "large.bin"
    count = 2_000
    with open(path, "wb") as file:  # 1.2 GB of zeros that take no room on the disk
        file.write(count.to_bytes(8, "little"))
        file.truncate(8 + count * (3 * 224 * 224 * 4 + 8))
    code = (
        "import resource, sys; from quaver.data.binary import load_binary\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data = load_binary(sys.argv[1]); data.images_nchw[-1].sum()\n"
        "print(len(data), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000)"
    )

    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["2000", "True"]


def test_a_batch_without_images_is_refused(path):
    write(path, noise(3), [0, 1, 2])

    with pytest.raises(ConfigError, match="at least 1 image"):
        next(load_binary(path).batches(-1))


def test_the_reader_may_be_told_how_many_classes_the_reference_layout_has(path):
    write(path, noise(1, (3, 224, 224)), [20], layout="reference")

    assert load_binary(path, reference_classes=21).classes == 21
    with pytest.raises(DataError, match=r"image 0 .* has label 20, outside 0\.\.19"):
        load_binary(path, reference_classes=20)
    assert load_binary(path, reference_classes=20, check_labels=False).highest_label == 20
