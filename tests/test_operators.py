"""Facts about single ops, on nodes made by hand."""

import operator

import pytest

from graphs import HandMade, aten
from quaver.operators import activation_inputs, channel_axis, keeps_range, never_negative, pair_axis, type_of, weight_of


@pytest.fixture
def made():
    return HandMade()


@pytest.fixture
def x(made):
    return made.input("x", 2, 4, 8, 8)


UNARY = {
    "relu": (aten.relu.default,),
    "relu6": (aten.hardtanh.default, 0, 6),
    "hardtanh": (aten.hardtanh.default, -1, 1),
    "leaky_relu": (aten.leaky_relu.default,),
    "sigmoid": (aten.sigmoid.default,),
    "hard_sigmoid": (aten.hardsigmoid.default,),
    "hard_swish": (aten.hardswish.default,),
    "swish": (aten.silu.default,),
    "pool2d": (aten.max_pool2d.default, 2),
    "interpolate": (aten.upsample_nearest2d.vec, None, [2.0, 2.0]),
    "mean": (aten.mean.dim, [2, 3]),
    "flatten": (aten.flatten.using_ints, 1),
    "reshape": (aten.view.default, [2, -1]),
    "transpose": (aten.permute.default, [0, 2, 3, 1]),
    "slice": (aten.slice.Tensor, 1, 0, 2),
    "assign": (aten.clone.default,),
    "pixel_shuffle": (aten.pixel_shuffle.default, 2),
    "scale": (aten.mul.Tensor, 0.5),
}


@pytest.mark.parametrize("name", UNARY)
def test_an_op_is_called_what_users_of_the_field_call_it(made, x, name):
    target, *arguments = UNARY[name]

    assert type_of(made.call(target, x, *arguments)) == name


@pytest.mark.parametrize(("target", "name"), [("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "div")])
def test_arithmetic_of_two_tensors_is_elementwise_and_with_a_number_a_scale(made, x, target, name):
    packet = getattr(aten, target).Tensor
    other = made.op("relu", aten.relu.default, x)

    assert type_of(made.call(packet, x, other)) == f"elementwise_{name}"
    assert type_of(made.call(packet, x, made.parameter("shift", 4, 1, 1))) == f"elementwise_{name}"
    assert type_of(made.call(packet, x, 2.0)) == "scale"


def test_what_is_no_op_to_a_user_has_no_type(made, x):
    parts = made.call(aten.chunk.default, x, 2, 1)

    assert type_of(x) is None
    assert type_of(made.call(operator.getitem, parts, 0)) is None
    assert type_of(made.call(aten.detach.default, x)) is None


def convolution(made, x, *shape, groups=1, target=aten.conv2d.default):
    weight = made.parameter(f"weight{shape}", *shape)
    rest = (None, [1, 1], [0, 0], [1, 1]) if target is aten.conv2d.default else (None, [1, 1], [0, 0], [0, 0])
    return made.op("conv", target, x, weight, *rest, groups)


def test_a_convolution_of_one_channel_each_is_depthwise(made, x):
    assert made.types[convolution(made, x, 8, 4, 3, 3)] == "conv2d"
    assert made.types[convolution(made, x, 4, 1, 3, 3, groups=4)] == "depthwise_conv2d"
    assert made.types[convolution(made, x, 4, 2, 3, 3, groups=2)] == "conv2d"


def test_a_weight_is_what_the_op_reads_from_the_model(made, x):
    conv = convolution(made, x, 8, 4, 3, 3)
    flat = made.op("flatten", aten.flatten.using_ints, x, 1)
    linear = made.op("fc", aten.linear.default, flat, made.parameter("fc", 5, 256))
    product = made.op("product", aten.matmul.default, flat, made.parameter("matrix", 256, 5))
    of_two = made.op("of_two", aten.matmul.default, x, x)

    for node in (conv, linear, product):
        assert weight_of(node, made.types[node]) is node.args[1]
    assert weight_of(of_two, made.types[of_two]) is None
    assert weight_of(flat, made.types[flat]) is None


def test_a_weight_that_is_computed_is_no_weight(made, x):
    computed = made.call(aten.relu.default, made.parameter("weight", 8, 4, 3, 3))
    conv = made.op("conv", aten.conv2d.default, x, computed)

    assert weight_of(conv, "conv2d") is None


def test_a_weight_has_a_scale_per_output_channel():
    axes = {name: channel_axis(name) for name in ("conv2d", "depthwise_conv2d", "mul", "conv2d_transpose", "matmul")}

    assert axes == {"conv2d": 0, "depthwise_conv2d": 0, "mul": 0, "conv2d_transpose": 1, "matmul": -1}


def test_products_are_added_in_pairs_along_the_input_channels(made, x):
    def axis(*shape, **options):
        node = convolution(made, x, *shape, **options)
        return pair_axis(node, made.types[node], shape)

    assert axis(8, 4, 3, 3) == 1
    assert axis(8, 2, 3, 3, groups=2) == 1
    assert axis(4, 1, 3, 3, groups=4) is None  # depthwise: there is only one
    assert axis(8, 1, 3, 3, groups=4) == 1  # several filters for a channel: run as a convolution in groups
    assert axis(4, 8, 3, 3, target=aten.conv_transpose2d.input) == 0


def test_an_ops_inputs_are_tensors_that_depend_on_the_models_input(made, x):
    relu = made.op("relu", aten.relu.default, x)
    shift = made.parameter("shift", 4, 1, 1)
    doubled = made.call(aten.mul.Tensor, shift, 2.0)
    doubled.meta["constant"] = True

    assert activation_inputs(made.call(aten.add.Tensor, x, relu)) == [x, relu]
    assert activation_inputs(made.call(aten.add.Tensor, x, shift)) == [x]
    assert activation_inputs(made.call(aten.add.Tensor, doubled, x)) == [x]
    assert activation_inputs(made.call(aten.add.Tensor, x, 1.0)) == [x]
    assert activation_inputs(made.call(aten.cat.default, [x, relu, x], 1)) == [x, relu, x]
    assert activation_inputs(convolution(made, x, 8, 4, 3, 3)) == [x]
    assert activation_inputs(made.call(aten.matmul.default, x, relu)) == [x, relu]


def test_what_moves_or_selects_stays_on_its_inputs_grid(made, x):
    moving = [
        (aten.max_pool2d.default, 2),
        (aten.upsample_nearest2d.vec, None, [2.0, 2.0]),
        *(UNARY[name] for name in ("flatten", "reshape", "transpose", "slice", "assign", "pixel_shuffle")),
    ]
    computing = [
        (aten.avg_pool2d.default, 2),
        (aten.upsample_bilinear2d.vec, None, False, [2.0, 2.0]),
        UNARY["relu"],
        UNARY["mean"],
    ]

    def keeps(target, *arguments):
        node = made.call(target, x, *arguments)
        return keeps_range(node, type_of(node))

    assert all(keeps(*one) for one in moving)
    assert not any(keeps(*one) for one in computing)
    assert keeps_range(made.call(aten.cat.default, [x, x], 1), "concat")


def test_what_cannot_be_negative(made, x):
    relu, sigmoid = made.op("relu", aten.relu.default, x), made.op("sigmoid", aten.sigmoid.default, x)
    shift = made.parameter("shift", 4, 1, 1)

    def sure(target, *arguments, **options):
        return never_negative(made.op("", target, *arguments, **options), made.types)

    assert sure(aten.relu.default, x)
    assert sure(aten.hardsigmoid.default, x)
    assert sure(aten.hardtanh.default, x, 0, 6)
    assert not sure(aten.hardtanh.default, x, -1, 1)
    assert sure(aten.clamp.default, x, 0.0)
    assert not sure(aten.clamp.default, x, None, 1.0)
    assert not sure(aten.silu.default, relu)
    assert not never_negative(x, made.types)
    # what keeps signs
    assert sure(aten.add.Tensor, relu, sigmoid)
    assert not sure(aten.add.Tensor, relu, x)
    assert not sure(aten.add.Tensor, relu, sigmoid, alpha=-1)
    assert not sure(aten.mul.Tensor, relu, shift)
    assert not sure(aten.sub.Tensor, relu, sigmoid)
    assert sure(aten.cat.default, [relu, sigmoid], 1)
    assert not sure(aten.cat.default, [relu, x], 1)
    assert sure(aten.avg_pool2d.default, relu, 2)
    assert sure(aten.upsample_bilinear2d.vec, relu, None, False, [2.0, 2.0])
    assert not sure(aten.upsample_bicubic2d.vec, relu, None, False, [2.0, 2.0])  # it overshoots


def test_a_part_of_what_cannot_be_negative_cannot_be_either(made, x):
    parts = made.op("chunk", aten.chunk.default, made.op("relu", aten.relu.default, x), 2, 1)

    assert never_negative(made.call(operator.getitem, parts, 1), made.types)
