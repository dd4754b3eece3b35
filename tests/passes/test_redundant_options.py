"""What the reference's scripts say at every step: taken where it is so, refused in words where it is not."""

import pytest
import torch

import quaver
from quaver.config import QATConfig
from quaver.errors import ConfigError
from quaver.passes import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)

CONFIG = {"weight_quantize_type": "channel_wise_abs_max", "activation_quantize_type": "moving_average_abs_max"}
CPU = [None, "cpu", torch.device("cpu")]
EVERY_TYPE = ["conv2d", "depthwise_conv2d", "mul"]


@pytest.fixture
def captured(patterns, images):
    return quaver.capture(patterns, (images,))


@pytest.mark.parametrize("place", CPU)
def test_the_passes_take_scope_and_place_where_they_are_the_programs_own(captured, images, place):
    program = QuantizationTransformPass(scope=None, place=place).apply(captured)
    program = AddQuantDequantPass(None, place).apply(program)
    program.train()(images)
    frozen = QuantizationFreezePass(None, place).apply(program.eval())
    int8 = ConvertToInt8Pass(None, place).apply(frozen)

    assert torch.equal(int8(images), program(images))
    assert TransformForMobilePass(place=place).apply(frozen).stage is quaver.Stage.MOBILE


@pytest.mark.parametrize(
    "made",
    [QuantizationTransformPass, AddQuantDequantPass, QuantizationFreezePass, ConvertToInt8Pass, TransformForMobilePass],
)
def test_every_pass_refuses_a_scope_and_what_is_no_place(made):
    with pytest.raises(ConfigError, match=f"{made.__name__}: scope=.*a program holds its own tensors"):
        made(object())
    with pytest.raises(ConfigError, match=f"{made.__name__}: place='gpu0': takes .* a device"):
        made(None, "gpu0")
    with pytest.raises(ConfigError, match=f"{made.__name__}: has no key 'plaice'. Did you mean 'place'"):
        made(plaice="cpu")


def test_another_place_than_the_programs_is_refused(captured, trained):
    with pytest.raises(
        ConfigError, match=r"QuantizationTransformPass: place='meta': the program is on cpu.*program.to\('meta'\)"
    ):
        QuantizationTransformPass(place="meta").apply(captured)
    with pytest.raises(ConfigError, match="quant_aware: place='meta': the program is on cpu"):
        quaver.quant_aware(captured, "meta", CONFIG)
    with pytest.raises(ConfigError, match="convert: place='meta': the program is on cpu"):
        quaver.convert(trained, "meta")


@pytest.mark.parametrize("options", [{"place": "cpu"}, {"scope": None, "place": torch.device("cpu")}, {}])
def test_quant_aware_takes_the_references_order_and_names(captured, images, options):
    by_name = quaver.quant_aware(captured, CONFIG, **options)
    in_order = quaver.quant_aware(captured, "cpu", CONFIG, None, for_test=True)

    by_name.train()(images)
    assert torch.equal(in_order(images), by_name.eval()(images))


def test_quant_aware_refuses_a_scope_and_example_inputs_without_their_name(captured, images):
    with pytest.raises(ConfigError, match=r"quant_aware: scope=.*a program holds its own tensors"):
        quaver.quant_aware(captured, "cpu", CONFIG, object())
    with pytest.raises(ConfigError, match="Example inputs go by their name"):
        quaver.quant_aware(captured, CONFIG, (images,))
    with pytest.raises(ConfigError, match="in this order or by their names, each once"):
        quaver.quant_aware(captured, "cpu", CONFIG, place="cpu")


@pytest.mark.parametrize("place", CPU)
def test_convert_gives_one_program_unless_save_int8_asks_for_two(trained, images, place):
    frozen = quaver.convert(trained, place)
    both = quaver.convert(trained, place, None, None, save_int8=True)

    assert isinstance(frozen, quaver.Program)
    assert [program.stage for program in both] == [quaver.Stage.FROZEN, quaver.Stage.INT8]


def test_what_was_save_int8_by_its_place_is_refused(trained):
    with pytest.raises(
        ConfigError, match=r"convert: place=True: takes a device. save_int8 goes by its name: save_int8=True"
    ):
        quaver.convert(trained, True)


def test_convert_takes_the_config_that_was_trained_with_and_no_other(captured, images):
    qat = quaver.quant_aware(captured, CONFIG | {"weight_bits": 6})
    qat.train()(images)

    quaver.convert(qat, "cpu", CONFIG | {"weight_bits": 6})
    with pytest.raises(ConfigError, match=r"convert: weight_bits=8: the program was trained with weight_bits=6"):
        quaver.convert(qat, "cpu", CONFIG)
    with pytest.raises(ConfigError, match=r"convert: quantize_op_types=.*: the program has quantized ops of other types"):
        quaver.convert(qat, config=CONFIG | {"weight_bits": 6, "quantize_op_types": ["conv2d"]})


def test_freezing_takes_what_the_program_was_made_with(trained):
    said = {"weight_quantize_type": "channel_wise_abs_max", "weight_bits": 8, "activation_bits": 8}

    frozen = QuantizationFreezePass(None, "cpu", quantizable_op_type=EVERY_TYPE, **said).apply(trained)

    assert ConvertToInt8Pass(quantizable_op_type=EVERY_TYPE).apply(frozen).stage is quaver.Stage.INT8


@pytest.mark.parametrize(
    ("option", "value", "so"),
    [
        ("weight_quantize_type", "abs_max", "'channel_wise_abs_max'"),
        ("weight_bits", 4, "8"),
        ("activation_bits", 4, "8"),
    ],
)
def test_freezing_refuses_what_contradicts_the_program(trained, option, value, so):
    words = f"QuantizationFreezePass: {option}={value!r}: the program was trained with {option}={so}. Leave it out"
    with pytest.raises(ConfigError, match=words):
        QuantizationFreezePass(**{option: value}).apply(trained)


def test_types_that_leave_out_a_quantized_weight_are_refused(trained):
    frozen = quaver.convert(trained)

    for one, program in ((QuantizationFreezePass, trained), (ConvertToInt8Pass, frozen)):
        with pytest.raises(
            ConfigError, match=f"{one.__name__}: quantizable_op_type='conv2d': the program has quantized ops of"
        ):
            one(quantizable_op_type="conv2d").apply(program)


def test_one_type_may_be_a_string(captured):
    config = quaver.QuantConfig(quantize_op_types="conv2d")
    by_pass = QuantizationTransformPass(quantizable_op_type="depthwise_conv2d").apply(captured)

    assert config.quantize_op_types == ("conv2d",)
    assert {op.type for op in quaver.quant_aware(captured, config).ops() if op.quantized} == {"conv2d"}
    assert {op.type for op in by_pass.ops() if op.quantized} == {"depthwise_conv2d"}
    assert QATConfig(quantizable_layer_type="Conv2D").layer_types == ("Conv2d",)
    with pytest.raises(ConfigError, match=r"quantize_op_types='conv'.*Did you mean 'conv1d' or 'conv2d' or 'conv3d'"):
        quaver.QuantConfig(quantize_op_types="conv")


def test_another_dtype_is_refused_with_what_is_so():
    with pytest.raises(ConfigError, match=r"dtype='uint8': takes int8, which weights are stored as; activations .* uint8"):
        quaver.QuantConfig(dtype="uint8")


def test_a_history_holds_what_made_the_program_and_not_what_was_said_again(captured, images):
    prepared = QuantizationTransformPass(None, "cpu").apply(captured)
    prepared.train()(images)
    frozen = QuantizationFreezePass(place="cpu", weight_bits=8, quantizable_op_type=EVERY_TYPE).apply(prepared.eval())

    assert not {"scope", "place"} & frozen.history[0].options.keys()
    assert frozen.history[1].words() == "QuantizationFreezePass()"
