import pytest
import torch
from torch import nn

import quaver
from quaver.errors import StageError
from quaver.passes import ConvertToInt8Pass, QuantizationTransformPass


def test_weights_are_stored_as_int8_and_the_output_is_bit_equal(trained, images):
    frozen = quaver.convert(trained)

    int8 = ConvertToInt8Pass().apply(frozen)

    weights = [value for name, value in int8.state_dict().items() if name.endswith(".weight")]
    assert len(weights) == 6
    assert {weight.dtype for weight in weights} == {torch.int8}
    assert torch.equal(int8(images), frozen(images))


def test_the_frozen_program_keeps_its_float32_weights(trained):
    frozen = quaver.convert(trained)

    ConvertToInt8Pass().apply(frozen)

    assert frozen.state_dict()["stem.weight"].dtype == torch.float32


def test_parameters_of_float_ops_stay_float(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4))
    prepared = QuantizationTransformPass(skip_pattern="0").apply(quaver.capture(model, (images,)))

    int8 = ConvertToInt8Pass().apply(quaver.convert(prepared))

    assert {value.dtype for value in int8.state_dict().values()} == {torch.float32}
    assert torch.equal(int8(images), model.eval()(images))


def test_a_program_that_is_not_frozen_is_refused(trained):
    with pytest.raises(StageError, match=r"the program is prepared, and the pass needs frozen.*Freeze the trained program"):
        ConvertToInt8Pass().apply(trained)
