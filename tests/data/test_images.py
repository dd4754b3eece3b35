import io
import os
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from quaver.data.images import MEAN, STD, read_image
from quaver.errors import DataError


def noise(width, height, channels=3):
    """A picture with soft patches, as photographs have."""
    small = np.random.default_rng(width * height).integers(0, 256, (5, 6, channels), dtype=np.uint8)
    return Image.fromarray(small.squeeze()).resize((width, height), Image.Resampling.BICUBIC)


def as_the_reference_does(image, size, short):
    """The published recipe, step by step: what every value of `read_image` is held to."""
    factor = short / min(image.size)
    image = image.resize((int(round(image.width * factor)), int(round(image.height * factor))), Image.LANCZOS)  # noqa: RUF046
    left, top = (image.width - size) / 2, (image.height - size) / 2
    image = image.crop((left, top, left + size, top + size)).convert("RGB")
    values = np.array(image).astype("float32").transpose(2, 0, 1) / 255
    values -= np.array(MEAN).reshape(3, 1, 1)
    values /= np.array(STD).reshape(3, 1, 1)
    return values


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (341, 257), (301, 999), (37, 20), (1, 1), (224, 224)])
def test_the_values_are_the_references_to_the_last_bit(tmp_path, size):
    noise(*size).save(tmp_path / "image.png")

    values = read_image(tmp_path / "image.png")

    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    assert np.array_equal(values, as_the_reference_does(noise(*size), 224, 256))


@pytest.mark.parametrize(("size", "short"), [(32, 37), (96, 110), (299, 342), (224, 256), (1, 1), (7, 8)])
def test_another_size_is_scaled_in_proportion(tmp_path, size, short):
    image = noise(120, 150)
    image.save(tmp_path / "image.png")

    values = read_image(tmp_path / "image.png", size)

    assert values.shape == (3, size, size)
    if size % 2 == 0:  # the reference's cut of an odd size may be a pixel too wide
        assert np.array_equal(values, as_the_reference_does(image, size, short))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_gray_and_printed_images_are_converted_after_scaling_as_in_the_reference(tmp_path, mode):
    noise(300, 260).convert(mode).save(tmp_path / "image.jpg", quality=95)

    values = read_image(tmp_path / "image.jpg")

    with Image.open(tmp_path / "image.jpg") as image:
        assert image.mode == mode
        assert np.array_equal(values, as_the_reference_does(image, 224, 256))


@pytest.mark.parametrize(("mode", "ending"), [("P", "gif"), ("P", "png"), ("1", "png"), ("RGBA", "png"), ("LA", "png")])
def test_palettes_and_transparency_become_rgb_before_scaling(tmp_path, mode, ending):
    noise(300, 260).convert(mode).save(tmp_path / f"image.{ending}")

    values = read_image(tmp_path / f"image.{ending}")

    with Image.open(tmp_path / f"image.{ending}") as image:
        assert np.array_equal(values, as_the_reference_does(image.convert("RGB"), 224, 256))


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_an_image_with_more_than_8_bits_is_refused_rather_than_clipped(tmp_path, dtype):
    Image.fromarray(np.full((300, 300), 200, dtype)).save(tmp_path / "deep.tiff")

    with pytest.raises(DataError, match=r"deep\.tiff: .*more than 8 bits"):
        read_image(tmp_path / "deep.tiff")


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such\.jpg: there is no such image"):
        read_image(tmp_path / "no such.jpg")


@pytest.mark.parametrize("content", [b"", b"words", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", bytes(1000)])
def test_a_file_that_is_no_image_is_named(tmp_path, content):
    (tmp_path / "broken.jpg").write_bytes(content)

    with pytest.raises(DataError, match=r"broken\.jpg: "):
        read_image(tmp_path / "broken.jpg")


def test_a_folder_is_no_image(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read: Is a directory\."):
        read_image(tmp_path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_a_cut_off_image_is_refused(tmp_path, kind):
    file = io.BytesIO()
    noise(200, 200).save(file, kind)
    content = file.getvalue()

    for share in (0.05, 0.3, 0.6, 0.9):
        (tmp_path / "cut.img").write_bytes(content[: int(len(content) * share)])
        with pytest.raises(DataError, match=r"cut\.img: "):
            read_image(tmp_path / "cut.img", 32)


CHANGE = st.tuples(st.floats(0, 0.999), st.integers(0, 255))


@pytest.fixture(scope="module")
def files():
    """A small image in several formats."""
    contents = []
    for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", *(["AVIF"] if features.check("avif") else [])):
        file = io.BytesIO()
        noise(24, 20).save(file, kind)
        contents.append(file.getvalue())
    return contents


@settings(max_examples=300, derandomize=True)
@given(
    which=st.integers(0, 7), changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=6)
)
def test_a_changed_image_is_an_image_or_refused(files, tmp_path_factory, which, changes):
    content = bytearray(files[which % len(files)])
    for place, value in changes:
        content[int(place**3 * len(content))] = value  # more often near the beginning, where the structure is
    path = tmp_path_factory.getbasetemp() / "changed.img"
    path.write_bytes(content)

    try:
        with warnings.catch_warnings(action="ignore"):
            values = read_image(path, 16)
    except DataError:
        return

    assert values.shape == (3, 16, 16)
    assert np.isfinite(values).all()


def test_a_strip_that_would_fill_the_memory_is_refused(tmp_path):
    Image.new("RGB", (30_000, 1)).save(tmp_path / "strip.png")

    with pytest.raises(DataError, match=r"strip\.png: .*scaled to 7680000 x 256 pixels it is too large"):
        read_image(tmp_path / "strip.png")


def test_an_image_that_claims_to_be_gigantic_is_refused(tmp_path):
    file = io.BytesIO()
    Image.new("1", (8, 8)).save(file, "BMP")
    content = bytearray(file.getvalue())
    content[18:26] = (60_000).to_bytes(4, "little") * 2
    (tmp_path / "bomb.bmp").write_bytes(content)

    with pytest.raises(DataError, match=r"bomb\.bmp: "):
        read_image(tmp_path / "bomb.bmp")


def test_a_pipe_with_an_images_name_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.png")

    with pytest.raises(DataError, match=r"x.png: the image cannot be read: this is a pipe or a device"):
        read_image(tmp_path / "x.png")


def test_a_program_for_ghostscript_is_no_image(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(tmp_path / "x.png")

    with pytest.raises(DataError, match="no image of a kind that Pillow reads"):
        read_image(tmp_path / "x.png")


def test_an_image_that_says_it_has_more_pixels_than_memory_is_refused_before_they_are_read(tmp_path):
    head = struct.pack(">IIBBBBB", 1_000_000, 1_000_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 9) + b"IDAT")

    with pytest.raises(DataError, match="exceeds limit"):
        read_image(tmp_path / "x.png")
