"""How images are prepared: said once, checked, and carried from a program to all that is made of it."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConfigError
from quaver.records import decoded

PREPARED = quaver.Preprocessing([8, 8], (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), resize=9, labels=["cat", "dog"])


def test_it_survives_json_which_says_what_follows_from_it():
    record = PREPARED.record(PREPARED.image(color="BGR"))

    assert decoded(quaver.Preprocessing, record) == PREPARED
    assert (record["crop"], record["layout"], record["color"], record["dtype"]) == ("center", "NHWC", "BGR", "uint8")
    assert PREPARED.record()["layout"] == "NCHW"
    with pytest.raises(ValueError, match="not how images are prepared"):
        decoded(quaver.Preprocessing, record | {"filter": "sinc"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 8}, "size=.*takes height and width"),
        ({"size": (8, 0)}, "size=.*takes height and width"),
        ({"filter": "lanzcos"}, "Did you mean 'lanczos'"),
        ({"labels": ["cat", 1]}, "labels=.*a list of texts"),
        ({"resize": -1}, "resize=-1"),
        ({"std": (1.0, 1.0)}, "mean has 3 numbers and std 2"),
    ],
)
def test_what_cannot_be_is_refused_in_words(changes, message):
    options = {"size": (8, 8), "mean": (0.5,) * 3, "std": (0.5,) * 3} | changes

    with pytest.raises(ConfigError, match=message):
        quaver.Preprocessing(**options)


def test_the_same_mean_in_bytes_agrees():
    in_bytes = quaver.ImageInput(255 * np.array(PREPARED.mean), 255 * np.array(PREPARED.std), unit=1)

    assert PREPARED.agrees_with(in_bytes)
    assert not PREPARED.agrees_with(quaver.ImageInput((0.5,) * 3, (0.5,) * 3))


def test_what_is_made_of_a_program_carries_it_on(tmp_path):
    program = quaver.capture(nn.Conv2d(3, 2, 3), (torch.zeros(2, 3, 8, 8),))
    program.preprocessing = PREPARED
    qat = quaver.quant_aware(program).train()
    qat(torch.rand(2, 3, 8, 8))

    frozen, int8 = quaver.convert(qat, save_int8=True)

    quaver.save(int8, tmp_path)
    assert quaver.load(tmp_path).preprocessing == frozen.preprocessing == PREPARED
