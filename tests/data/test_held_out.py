"""Images that are held out of training, to choose by."""

import pytest
import torch

from quaver.data import open_dataset
from quaver.data.held_out import held_out
from quaver.errors import ConfigError


def test_every_image_is_in_one_of_the_two_parts():
    digits = open_dataset("digits", "train")

    rest, aside = held_out(digits, seed=0)

    assert sorted([*rest.numbers, *aside.numbers]) == list(range(len(digits)))
    assert len(aside) == len(digits) // 10


def test_the_parts_follow_from_the_seed():
    digits = open_dataset("digits", "train")

    first, again, other = (held_out(digits, seed=seed)[1].numbers for seed in (0, 0, 1))

    assert first == again != other


def test_what_is_held_out_is_not_varied_and_the_rest_is():
    plain, varied = (open_dataset("digits", "train", augment=augment) for augment in (False, True))

    rest, aside = held_out(varied, seed=0)
    rest.set_epoch(3)
    varied.set_epoch(3)

    assert torch.equal(aside.batch([0, 5])[0], plain.batch([aside.numbers[0], aside.numbers[5]])[0])
    assert torch.equal(rest.batch([0, 5])[0], varied.batch([rest.numbers[0], rest.numbers[5]])[0])
    assert not torch.equal(rest.batch([0, 5])[0], plain.batch([rest.numbers[0], rest.numbers[5]])[0])
    assert (aside.classes, aside.image_shape, aside[3][1]) == (10, (3, 32, 32), plain[aside.numbers[3]][1])


def test_too_few_images_are_an_error():
    whole = open_dataset("digits", "train")
    whole.images_nchw, whole.labels = whole.images_nchw[:9], whole.labels[:9]

    with pytest.raises(ConfigError, match="one training image in 10 is held out to choose by, and there are only 9"):
        held_out(whole, seed=0)
