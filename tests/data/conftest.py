import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def picture():
    """Write a small picture, different for every number."""

    def write(path, number=0, size=(40, 30)):
        path.parent.mkdir(parents=True, exist_ok=True)
        small = np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path)
        return path

    return write


@pytest.fixture
def folder_set(tmp_path, picture):
    """Two classes with images in train/ and val/."""
    for split, count in (("train", 4), ("val", 2)):
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                picture(tmp_path / split / name / f"{number}.png", 10 * label + number)
    return tmp_path
