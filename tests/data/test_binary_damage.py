"""A file that was cut, changed or is another kind of file is refused with words; only a pixel may change unnoticed."""

import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.data.binary import BinaryWriter, load_binary
from quaver.errors import DataError

LAW = settings(max_examples=300, derandomize=True)
SHAPE, CLASSES, LABELS = (2, 3, 5), 7, [6, 0, 3, 3]
HEADER, END_OF_IMAGES = 48, 48 + 4 * 4 * 2 * 3 * 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "data.bin"
    with BinaryWriter(path, image_shape=SHAPE, classes=CLASSES, layout="header") as writer:
        for label in LABELS:
            writer.add(np.full(SHAPE, label, np.float32), label)
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "data.bin"


def header(count=4, channels=2, height=3, width=5, classes=CLASSES, magic=b"QUAVERB1"):
    return struct.pack("<8sqqqqq", magic, count, channels, height, width, classes)


def test_every_prefix_of_a_file_is_refused(whole, path):
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"empty|must begin with|too few"):
            load_binary(path)


@pytest.mark.parametrize("more", [1, 7, 8, 1000])
def test_a_file_that_is_too_long_is_refused(whole, path, more):
    path.write_bytes(whole + bytes(more))

    with pytest.raises(DataError, match=f"{more} too many"):
        load_binary(path)


def test_every_prefix_of_the_reference_layout_is_refused(path):
    image = 3 * 224 * 224 * 4
    content = (1).to_bytes(8, "little") + bytes(image + 8)
    path.write_bytes(content)
    assert load_binary(path).labels.tolist() == [0]

    for length in (*range(20), image, image + 7, image + 8, image + 15):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"empty|must begin with|too few"):
            load_binary(path)


@LAW
@given(flips=st.lists(st.tuples(st.integers(0, HEADER - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_bytes_flipped_in_the_header_are_refused_or_leave_a_file_that_fits(whole, path, flips):
    content = bytearray(whole)
    for place, mask in flips:
        content[place] ^= mask
    path.write_bytes(content)

    try:
        data = load_binary(path)
    except DataError:
        return

    # with no checksum in the format, another number of classes, or sizes with the same product, are a file too
    assert (len(data), data.labels.tolist()) == (len(LABELS), LABELS)
    assert np.prod(data.image_shape) == np.prod(SHAPE)
    assert data.classes > max(LABELS)


@pytest.mark.parametrize("place", range(8, 40))
def test_one_bit_flipped_in_a_length_is_refused(whole, path, place):
    for bit in range(8):
        content = bytearray(whole)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        with pytest.raises(DataError):
            load_binary(path)


@pytest.mark.parametrize("place", range(8))
def test_one_bit_flipped_in_the_magic_is_refused(whole, path, place):
    for bit in range(8):
        content = bytearray(whole)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"neither with QUAVERB1 nor|images"):
            load_binary(path)


@LAW
@given(label=st.integers(-(2**63), 2**63 - 1), which=st.integers(0, 3))
def test_a_label_out_of_range_is_refused(whole, path, label, which):
    place = END_OF_IMAGES + 8 * which
    path.write_bytes(whole[:place] + struct.pack("<q", label) + whole[place + 8 :])

    if 0 <= label < CLASSES:
        assert load_binary(path).labels[which] == label
    else:
        with pytest.raises(DataError, match=rf"image {which} .* has label {label}, outside 0\.\.6"):
            load_binary(path)


@pytest.mark.parametrize("field", ["count", "channels", "height", "width", "classes"])
@pytest.mark.parametrize("value", [0, -1, -(2**63)])
def test_a_number_below_1_is_refused(path, field, value):
    path.write_bytes(header(**{field: value}))

    with pytest.raises(DataError, match=f"says that it has {value} "):
        load_binary(path)


@pytest.mark.parametrize("field", ["count", "channels", "height", "width"])
@pytest.mark.parametrize("value", [2**31, 2**62, 2**63 - 1])
def test_a_huge_number_is_refused_at_once(whole, path, field, value):
    path.write_bytes(header(**{field: value}) + whole[HEADER:])

    with pytest.raises(DataError, match="too few"):
        load_binary(path)


def test_numbers_whose_product_overflows_to_the_right_length_are_refused(path):
    # 2^32 * 2^32 is 0 in 64 bits: the images would take no room, and 8 bytes of labels be all there is
    path.write_bytes(header(count=1, channels=1, height=2**32, width=2**32) + bytes(8))

    with pytest.raises(DataError, match="too few"):
        load_binary(path)


@pytest.mark.parametrize("count", [0, -1, -(2**63), 2**40, 2**62, 2**63 - 1])
def test_a_count_that_is_none_is_refused_without_a_magic(path, count):
    path.write_bytes(struct.pack("<q", count) + bytes(100))

    with pytest.raises(DataError, match=r"has -?\d+ images|neither with QUAVERB1 nor"):
        load_binary(path)


FOREIGN = {
    "zeros": bytes(5000),
    "ones": b"\xff" * 5000,
    "text": b"val/image 1.jpg 7\n" * 100,
    "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(100),
    "npy": b"\x93NUMPY\x01\x00" + bytes(100),
    "elf": b"\x7fELF\x02\x01\x01\x00" + bytes(100),
    "magic alone": b"QUAVERB1",
    "another version": header(magic=b"QUAVERB2") + bytes(500),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_another_kind_of_file_is_refused(path, content):
    path.write_bytes(content)

    with pytest.raises(DataError, match="quaver convert-data makes one"):
        load_binary(path)


@LAW
@given(content=st.binary(max_size=200))
def test_noise_is_refused(path, content):
    path.write_bytes(content)

    with pytest.raises(DataError):
        load_binary(path)


def test_what_is_missing_or_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(DataError, match=r"none\.bin: there is no such file"):
        load_binary(tmp_path / "none.bin")
    with pytest.raises(DataError, match="a folder or a device"):
        load_binary(tmp_path)
    with pytest.raises(DataError, match="a folder or a device"):
        load_binary(tmp_path / "pipe")


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), ValueError("mmap length is greater than file size")]
)
def test_a_file_that_may_not_be_read_or_shrinks_meanwhile_is_refused(whole, path, monkeypatch, error):
    def fail(*_args):
        raise error

    path.write_bytes(whole)
    monkeypatch.setattr(np, "memmap", fail)

    with pytest.raises(DataError, match=r"data\.bin: cannot be read: .*(Permission denied|greater than file size)"):
        load_binary(path)
