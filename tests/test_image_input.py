"""What a camera's bytes stand for, said once."""

import numpy as np
import pytest
import torch

import quaver
from quaver.errors import ConfigError, InputError
from quaver.records import decoded

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3)).astype(np.uint8)


def test_bytes_become_what_totensor_and_normalize_make_of_them():
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    expected = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float().div(255).sub(mean).div(std)  # torchvision's steps

    prepared = quaver.ImageInput(MEAN, STD).prepared(IMAGES)

    assert np.array_equal(prepared, expected.numpy())


def test_the_layout_and_the_order_of_colours_change_nothing_but_how_images_are_given():
    plain = quaver.ImageInput(MEAN, STD).prepared(IMAGES)
    first = IMAGES.transpose(0, 3, 1, 2)

    assert np.array_equal(quaver.ImageInput(MEAN, STD, layout="NCHW").prepared(first), plain)
    assert np.array_equal(quaver.ImageInput(MEAN, STD, color="BGR").prepared(IMAGES[..., ::-1]), plain)
    assert np.array_equal(quaver.ImageInput(MEAN, STD, layout="NCHW", color="BGR").prepared(first[:, ::-1]), plain)


def test_mean_and_deviation_can_be_said_in_bytes():
    table = quaver.ImageInput([127] * 3, [128] * 3, unit=1).table()

    assert np.array_equal(table[1], (np.arange(256) - 127) / 128)


@pytest.mark.parametrize(("layout", "color"), [("NHWC", "RGB"), ("NHWC", "BGR"), ("NCHW", "BGR")])
def test_the_bytes_that_became_a_tensor_are_found_again(layout, color):
    image = quaver.ImageInput(MEAN, STD, layout=layout, color=color)
    given = IMAGES if layout == "NHWC" else np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2))

    assert np.array_equal(image.images_of(image.prepared(given)), given)


def test_a_tensor_that_does_not_come_of_bytes_in_this_way_is_refused():
    otherwise = quaver.ImageInput((0.5,) * 3, (0.5,) * 3).prepared(IMAGES)

    with pytest.raises(InputError, match=r"prepared otherwise.*export without image="):
        quaver.ImageInput(MEAN, STD).images_of(otherwise)


def test_other_images_are_refused_in_words():
    with pytest.raises(InputError, match=r"takes uint8 images .*RGB, NHWC.*not float32 of shape \(2, 5, 4, 3\)"):
        quaver.ImageInput(MEAN, STD).prepared(IMAGES.astype(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": MEAN, "std": (0.2, 0.2)}, "mean has 3 numbers and std 2"),
        ({"mean": MEAN, "std": (0.2, 0.2, 0.0)}, "std=.*takes a number above 0 for each channel"),
        ({"mean": 0.5, "std": 0.5}, "mean=.*for each channel"),
        ({"mean": (float("nan"),), "std": (1.0,)}, "mean=.*takes a finite number"),
        ({"mean": MEAN, "std": STD, "layout": "NHCW"}, "layout='NHCW'.*Did you mean 'NCHW' or 'NHWC'"),
        ({"mean": MEAN, "std": STD, "dtype": "float32"}, "dtype='float32': takes one of uint8"),
        ({"mean": MEAN, "std": STD, "unit": 2}, "unit=2: takes 255 .* or 1"),
        ({"mean": (0.5,), "std": (0.5,), "color": "BGR"}, "BGR.* three channels"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, message):
    with pytest.raises(ConfigError, match=message):
        quaver.ImageInput(**options)


def test_it_survives_json():
    image = quaver.ImageInput([127] * 3, [128] * 3, unit=1, color="BGR")

    assert decoded(quaver.ImageInput, image.record()) == image
    with pytest.raises(ValueError, match="not how a file takes images"):
        decoded(quaver.ImageInput, {"mean": [1]})
