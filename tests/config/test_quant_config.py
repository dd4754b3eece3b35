import inspect
from collections import OrderedDict
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest

from quaver import QuantConfig
from quaver.config import ACTIVATION_TYPES, WEIGHT_TYPES
from quaver.config.scopes import contains
from quaver.engines import DEFAULT
from quaver.errors import ConfigError, QuaverError

DEFAULTS = {
    "weight_quantize_type": "channel_wise_abs_max",
    "activation_quantize_type": "moving_average_abs_max",
    "weight_preprocess_type": None,
    "activation_preprocess_type": None,
    "weight_bits": 8,
    "activation_bits": 8,
    "layer_bits": (),
    "not_quant_pattern": ("skip_quant",),
    "quantize_op_types": DEFAULT.op_types,
    "dtype": "int8",
    "window_size": 10000,
    "moving_rate": 0.9,
    "quant_weight_only": False,
    "pass_through": False,
    "saturation_safe": True,
    "target": "openvino",
}


def test_defaults_are_the_documented_ones():
    assert asdict(QuantConfig()) == DEFAULTS


def test_what_the_classic_passes_quantize_is_quantized_by_default():
    assert {"conv2d", "depthwise_conv2d", "mul", "elementwise_add", "pool2d"} <= set(QuantConfig().quantize_op_types)


def test_nothing_gives_the_defaults():
    assert QuantConfig.of(None) == QuantConfig()


def test_a_config_is_taken_as_it_is():
    config = QuantConfig(weight_bits=4)

    assert QuantConfig.of(config) is config


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_dict_sets_the_keys_it_holds_and_leaves_the_rest(kind):
    config = QuantConfig.of(kind(weight_bits=4, activation_quantize_type="range_abs_max"))

    assert asdict(config) == DEFAULTS | {"weight_bits": 4, "activation_quantize_type": "range_abs_max"}


def test_every_key_can_be_set():
    options = {
        "weight_quantize_type": "abs_max",
        "activation_quantize_type": "abs_max",
        "weight_preprocess_type": "PACT",
        "activation_preprocess_type": "PACT",
        "weight_bits": 2,
        "activation_bits": 7,
        "layer_bits": [("stem", (8, 4))],
        "not_quant_pattern": ["head", "stem"],
        "quantize_op_types": ["conv2d", "mul"],
        "dtype": "int8",
        "window_size": 1,
        "moving_rate": 0,
        "quant_weight_only": True,
        "pass_through": True,
        "saturation_safe": False,
        "target": "openvino",
    }

    config = QuantConfig.of(options)

    assert {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()} == options
    assert options.keys() == {field.name for field in fields(QuantConfig)}


@pytest.mark.parametrize("config", [8, "weight_bits", [("weight_bits", 8)], QuantConfig])
def test_what_is_neither_dict_nor_config_is_refused(config):
    with pytest.raises(ConfigError, match=rf"config: takes a dict or a QuantConfig, not {type(config).__name__}\."):
        QuantConfig.of(config)


def test_an_unknown_key_names_the_nearest_and_all_known_ones():
    known = ", ".join(sorted(DEFAULTS))

    with pytest.raises(
        ConfigError, match=rf"^config: has no key 'weigth_bits'\. Did you mean 'weight_bits'\? Known keys: {known}\.$"
    ):
        QuantConfig.of({"weigth_bits": 8})


def test_an_unknown_key_in_a_call_is_answered_like_one_in_a_dict():
    with pytest.raises(ConfigError, match=r"^QuantConfig: has no key 'weigth_bits'\. Did you mean 'weight_bits'\?"):
        QuantConfig(weigth_bits=8)


@pytest.mark.parametrize("key", ["zzz", 8])
def test_a_key_that_resembles_none_gets_no_guess(key):
    with pytest.raises(ConfigError, match=rf"^config: has no key {key!r}\. Known keys: "):
        QuantConfig.of({key: 8})


@pytest.mark.parametrize("key", ["weight_bits", "activation_bits"])
@pytest.mark.parametrize("bits", range(2, 9))
def test_bits_are_2_to_8(key, bits):
    assert getattr(QuantConfig.of({key: bits}), key) == bits


@pytest.mark.parametrize("key", ["weight_bits", "activation_bits"])
@pytest.mark.parametrize("bits", [1, 9, 0, -8, 16, True, 8.0, "8", None])
def test_other_bits_are_refused(key, bits):
    with pytest.raises(ConfigError, match=rf"^config: {key}={bits!r}: takes a whole number from 2 to 8\.$"):
        QuantConfig.of({key: bits})


@pytest.mark.parametrize("size", [0, -1, True, 10.0, "10", None])
def test_an_impossible_window_size_is_refused(size):
    with pytest.raises(ConfigError, match=rf"^config: window_size={size!r}: takes a whole number of at least 1\.$"):
        QuantConfig.of({"window_size": size})


@pytest.mark.parametrize("rate", [1, 1.0, -0.1, float("nan"), float("inf"), False, "0.9", None, "1.0", "10"])
def test_an_impossible_moving_rate_is_refused_without_a_guess(rate):
    with pytest.raises(
        ConfigError, match=rf"^config: moving_rate={rate!r}: takes a number from 0 up to, but not including, 1\.$"
    ):
        QuantConfig.of({"moving_rate": rate})


@pytest.mark.parametrize("key", ["quant_weight_only", "pass_through", "saturation_safe"])
@pytest.mark.parametrize("value", [1, 0, "True", None])
def test_a_boolean_is_true_or_false_and_nothing_like_it(key, value):
    with pytest.raises(ConfigError, match=rf"^config: {key}={value!r}: takes True or False\.$"):
        QuantConfig.of({key: value})


@pytest.mark.parametrize("kind", WEIGHT_TYPES)
def test_weights_take_every_range_rule(kind):
    assert QuantConfig(weight_quantize_type=kind).weight_quantize_type == kind


@pytest.mark.parametrize("kind", ACTIVATION_TYPES)
def test_activations_take_every_range_rule_without_channels(kind):
    assert QuantConfig(activation_quantize_type=kind).activation_quantize_type == kind


def test_range_rules_are_the_documented_ones():
    rules = {"abs_max", "range_abs_max", "moving_average_abs_max", "learned_step"}

    assert set(ACTIVATION_TYPES) == rules
    assert set(WEIGHT_TYPES) == rules | {"channel_wise_abs_max", "channel_wise_learned_step"}


@pytest.mark.parametrize("key", ["weight_preprocess_type", "activation_preprocess_type"])
@pytest.mark.parametrize("value", ["pact", "", False, 20])
def test_what_stands_in_front_of_a_quantizer_is_nothing_or_pact(key, value):
    with pytest.raises(ConfigError, match=rf"^config: {key}={value!r}: takes None or one of PACT\."):
        QuantConfig.of({key: value})


def test_layer_bits_are_the_weights_and_the_inputs():
    config = QuantConfig(layer_bits={"stem": 8, "head": [4, 6]})

    assert config.layer_bits == (("stem", (8, 8)), ("head", (4, 6)))
    assert hash(config) == hash(QuantConfig(layer_bits=(("stem", 8), ("head", (4, 6)))))


@pytest.mark.parametrize("kind", ["channel_wise_abs_max", "", None, 8, ["abs_max"]])
def test_another_range_rule_for_activations_is_refused_with_the_choice(kind):
    with pytest.raises(ConfigError, match="takes one of abs_max, range_abs_max, moving_average_abs_max"):
        QuantConfig(activation_quantize_type=kind)


def test_a_misspelt_range_rule_names_the_nearest():
    with pytest.raises(
        ConfigError, match=r"weight_quantize_type='chanel_wise_absmax'.*Did you mean 'channel_wise_abs_max'\?"
    ):
        QuantConfig(weight_quantize_type="chanel_wise_absmax")


@pytest.mark.parametrize("op_types", ["conv", ["conv2d", "conv9d"], [8], None, {"conv2d"}])
def test_op_types_are_a_list_of_known_names(op_types):
    with pytest.raises(ConfigError, match=r"quantize_op_types=.*: takes a list of names from assign, concat, conv1d"):
        QuantConfig(quantize_op_types=op_types)


def test_misspelt_op_types_each_name_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean 'depthwise_conv2d'\? Did you mean 'pool2d'\?$"):
        QuantConfig(quantize_op_types=["conv2d", "depthwise_conv2", "pool2"])


@pytest.mark.parametrize("dtype", ["int4", "float32", 8, None])
def test_the_only_dtype_is_int8(dtype):
    with pytest.raises(ConfigError, match=rf"dtype={dtype!r}: takes int8, which weights are stored as"):
        QuantConfig(dtype=dtype)


def test_an_unknown_target_is_refused_with_the_choice():
    with pytest.raises(ConfigError, match=r"target='tensorflow': takes one of .*openvino"):
        QuantConfig(target="tensorflow")


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [("head", ("head",)), (["head", "stem"], ("head", "stem")), (("head",), ("head",)), ([], ())],
)
def test_not_quant_pattern_is_one_string_or_several(pattern, patterns):
    assert QuantConfig(not_quant_pattern=pattern).patterns == patterns


@pytest.mark.parametrize(("pattern", "found"), [("2", "2 12 20 2.a"), ("^2", "2 20 2.a"), ("2$", "2 12"), ("^2$", "2")])
def test_a_pattern_can_be_held_to_the_ends_of_a_scope(pattern, found):
    assert " ".join(scope for scope in ("2", "12", "20", "2.a") if contains(scope, pattern)) == found


@pytest.mark.parametrize("pattern", [None, 8, ["head", 8], {"head"}])
def test_other_patterns_are_refused(pattern):
    with pytest.raises(ConfigError, match=r"not_quant_pattern=.*: takes a string or a list of strings"):
        QuantConfig(not_quant_pattern=pattern)


@pytest.mark.parametrize("make", [QuantConfig.of, lambda options: QuantConfig(**options)], ids=["dict", "call"])
def test_all_problems_are_reported_at_once_a_line_each(make):
    options = {"weigth_bits": 8, "activation_bits": 9, "dtype": "int8", "moving_rate": 2, "pass_through": "yes"}

    with pytest.raises(ConfigError) as caught:
        make(options)

    lines = str(caught.value).splitlines()
    words = ["has no key 'weigth_bits'", "activation_bits=9", "moving_rate=2", "pass_through='yes'"]
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


def test_a_config_error_is_a_value_error_and_a_quaver_error():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, QuaverError)


def test_a_config_cannot_be_changed():
    config = QuantConfig()

    with pytest.raises(FrozenInstanceError, match="weight_bits"):
        config.weight_bits = 4


def test_a_changed_copy_is_checked_like_the_original():
    config = replace(QuantConfig(weight_bits=4), activation_bits=6)

    assert (config.weight_bits, config.activation_bits) == (4, 6)
    with pytest.raises(ConfigError, match="activation_bits=1: takes"):
        replace(config, activation_bits=1)


def test_options_are_given_by_name_only():
    with pytest.raises(TypeError, match="positional"):
        QuantConfig("abs_max")


def test_help_shows_the_keys_and_their_defaults():
    signature = inspect.signature(QuantConfig)

    assert {name: parameter.default for name, parameter in signature.parameters.items()} == DEFAULTS
