"""What data sets say about how their images are prepared is how they prepare them."""

import numpy as np
import pytest
from PIL import Image

from quaver.data import open_dataset, write_shapes


def scaled(image, about):
    """The image as the record has it scaled and cut out."""
    sampling = Image.Resampling[about.filter.upper()]
    height, width = about.size
    if not about.resize:
        return image.resize((width, height), sampling)
    sides = [round(side * about.resize / min(image.size)) for side in image.size]
    left, top = round((sides[0] - width) / 2), round((sides[1] - height) / 2)
    return image.resize(sides, sampling).crop((left, top, left + width, top + height))


@pytest.mark.parametrize("name", ["folder", "voc"])
def test_images_from_files_are_prepared_as_is_said(name, tmp_path):
    if name == "voc":
        path = write_shapes(tmp_path / "shapes", train=1, val=1, size=50) / "JPEGImages" / "000001.jpg"
        data = open_dataset("voc", "val", data_dir=tmp_path / "shapes", image_size=32)
    else:
        for label in ("ant", "bee"):
            (tmp_path / label).mkdir()
            for number in range(2):
                pixels = np.random.default_rng(number).integers(0, 256, (40, 60, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
        data = open_dataset("folder", "train", data_dir=tmp_path, image_size=32)
        path = data.path(0)
    about = data.preprocessing

    pixels = np.asarray(scaled(Image.open(path).convert("RGB"), about))[None]

    assert np.allclose(about.image().prepared(pixels)[0], data[0][0].numpy(), atol=1e-6)
    assert len(about.labels) == data.classes


def test_digits_say_theirs():
    about = open_dataset("digits", "val", image_size=16).preprocessing

    assert about.size == (16, 16)
    assert about.image().table()[0, [0, 255]].tolist() == [-1.0, 1.0]  # as the images are
    assert about.labels == tuple("0123456789")
