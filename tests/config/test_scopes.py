import warnings

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import QuaverWarning

MODEL = nn.Sequential()
MODEL.add_module("features", nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
MODEL.add_module("flatten", nn.Flatten())
MODEL.add_module("classifier", nn.Linear(144, 5))


def graph_path(config):
    return quaver.quant_aware(MODEL, config, example_inputs=(torch.randn(2, 3, 8, 8),))


def eager_path(config):
    return quaver.QAT(config).quantize(MODEL, inplace=False)


@pytest.mark.parametrize("path", [graph_path, eager_path])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"not_quant_pattern": ["clasifier"]}, "not_quant_pattern: 'clasifier' is in no layer's name.* mean 'classifier'"),
        ({"layer_bits": {"^stem$": 4}}, r"layer_bits: '\^stem\$' is in no layer's name, so it changes nothing"),
    ],
    ids=["not_quant_pattern", "layer_bits"],
)
def test_a_pattern_that_is_nowhere_is_warned_of_where_it_was_given(path, config, message):
    with pytest.warns(QuaverWarning, match=message) as caught:
        path(config)

    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("path", [graph_path, eager_path])
def test_a_pattern_that_is_somewhere_and_the_customary_one_are_not(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path({"not_quant_pattern": ["skip_quant", "^features.0$"], "layer_bits": {"class": 4}})
