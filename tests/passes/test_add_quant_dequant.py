import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.errors import ConfigError
from quaver.graph.nodes import quantizer_of
from quaver.passes import AddQuantDequantPass, QuantizationTransformPass

IMAGES = (torch.zeros(2, 8, 8, 8),)

UNARY = {
    "pool2d max": (lambda x: F.max_pool2d(x, 2), "pool2d"),
    "pool2d average": (lambda x: F.avg_pool2d(x, 2), "pool2d"),
    "pool2d adaptive": (lambda x: F.adaptive_avg_pool2d(x, 2), "pool2d"),
    "pool2d adaptive max": (lambda x: F.adaptive_max_pool2d(x, 2), "pool2d"),
    "relu": (F.relu, "relu"),
    "relu6": (F.relu6, "relu6"),
    "relu6 as a module": (nn.ReLU6(), "relu6"),
    "hard_swish": (F.hardswish, "hard_swish"),
    "hard_sigmoid": (F.hardsigmoid, "hard_sigmoid"),
    "swish": (F.silu, "swish"),
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "leaky_relu": (F.leaky_relu, "leaky_relu"),
    "interpolate nearest": (lambda x: F.interpolate(x, scale_factor=2), "interpolate"),
    "interpolate bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "interpolate"),
    "mean": (lambda x: x.mean((2, 3)), "mean"),
    "flatten": (lambda x: x.flatten(1), "flatten"),
    "reshape": (lambda x: x.reshape(x.shape[0], -1), "reshape"),
    "view": (lambda x: x.view(x.size(0), -1), "reshape"),
    "transpose": (lambda x: x.permute(0, 2, 3, 1), "transpose"),
    "slice": (lambda x: x[:, ::2], "slice"),
    "split": (lambda x: torch.cat(torch.chunk(x, 2, 1)), "split"),
}
BINARY = {
    "elementwise_add": torch.add,
    "elementwise_mul": torch.mul,
    "matmul": torch.matmul,
    "concat": lambda x, y: torch.cat([x, y], 1),
}


class Net(nn.Module):
    def __init__(self, function, inputs=1):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(inputs))
        self.function = function

    def forward(self, x):
        # a sine, so that no input comes straight from a convolution
        return self.function(*(torch.sin(conv(x)) for conv in self.convs))


def records(program):
    return {op.type: op for op in program.ops()}


def check_converts(prepared):
    """Trained, frozen and int8 must give the same bits, whatever was quantized."""
    torch.manual_seed(0)
    for _ in range(2):
        prepared.train()(torch.randn(2, 8, 8, 8))
    x = torch.randn(2, 8, 8, 8)
    frozen, int8 = quaver.convert(prepared, save_int8=True)
    assert torch.equal(frozen(x), prepared.eval()(x))
    assert torch.equal(int8(x), frozen(x))


@pytest.mark.slow
@pytest.mark.parametrize("case", UNARY)
def test_an_op_with_one_input_is_quantized_and_converts(case):
    function, op_type = UNARY[case]
    program = quaver.capture(Net(function), IMAGES)

    prepared = AddQuantDequantPass(quantizable_op_type=[op_type]).apply(program)

    assert records(prepared)[op_type].quantized
    assert records(prepared)[op_type].thresholds.keys() == {"input", "output"}
    assert not records(prepared)["conv2d"].quantized
    check_converts(prepared)


@pytest.mark.parametrize("op_type", BINARY)
def test_an_op_with_two_inputs_has_both_quantized_and_converts(op_type):
    program = quaver.capture(Net(BINARY[op_type], inputs=2), IMAGES)

    prepared = AddQuantDequantPass(quantizable_op_type=[op_type]).apply(program)

    assert records(prepared)[op_type].quantized
    assert records(prepared)[op_type].thresholds.keys() == {"input0", "input1", "output"}
    check_converts(prepared)


def test_a_convolution_that_is_added_to_stays_unrounded_before_the_sum(patterns, images):
    prepared = quaver.quant_aware(patterns, example_inputs=(images,))

    (add,) = [node for node in prepared.graphs["eval"].nodes if str(node.target) == "aten.add.Tensor"]
    convolution, other = add.args
    assert str(convolution.target) == "aten.batch_norm.default"
    assert quantizer_of(other) == "relu.output"


def test_of_two_convolutions_that_are_added_one_is_rounded():
    net = Net(torch.add, inputs=2)
    net.forward = lambda x: net.convs[0](x) + net.convs[1](x)

    prepared = AddQuantDequantPass().apply(quaver.capture(net, IMAGES))

    (add,) = [node for node in prepared.graphs["eval"].nodes if str(node.target) == "aten.add.Tensor"]
    assert [bool(quantizer_of(value)) for value in add.args] == [False, True]


@pytest.mark.parametrize(
    "first", [QuantizationTransformPass(), AddQuantDequantPass(quantizable_op_type=["concat", "pool2d"])]
)
def test_ops_that_cannot_rescale_share_one_range_whichever_pass_comes_first(patterns, images, first):
    passes = [QuantizationTransformPass(), AddQuantDequantPass(quantizable_op_type=["concat", "pool2d"])]
    passes.sort(key=lambda one: type(one) is not type(first))
    prepared = quaver.capture(patterns, (images,))

    for one in passes:
        prepared = one.apply(prepared)

    roles = prepared.placements.roles
    assert roles["concat"] == {"input0": "left.output", "input1": "left.output", "output": "left.output"}
    assert roles["pool2d"]["input"] == roles["pool2d"]["output"] == roles["body"]["input"] == "relu.output"
    assert prepared.quantizer("left.output").tensors == 2
    assert "pool2d.output" not in prepared.placements.quantizers


def test_inputs_of_a_concatenation_do_not_dilute_each_others_range(patterns, images):
    prepared = quaver.quant_aware(patterns, example_inputs=(images,))
    quantizer = prepared.quantizer("left.output")

    prepared.train()(images)

    assert (quantizer.accum > 0).all()
    assert quantizer.threshold == (quantizer.accum / quantizer.state).max()


def test_a_bias_add_declines_and_says_so():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(8, 1, 1))

        def forward(self, x):
            return x + self.bias

    prepared = AddQuantDequantPass().apply(quaver.capture(Net(), IMAGES))

    assert records(prepared)["elementwise_add"].reason == "one of its operands is a parameter of the model, such as a bias"


def test_integer_tensors_decline_and_say_so():
    class Net(nn.Module):
        def forward(self, x):
            return x.argmax(1) + x.argmin(1)

    prepared = AddQuantDequantPass().apply(quaver.capture(Net(), IMAGES))

    assert records(prepared)["elementwise_add"].reason == "its inputs are not floating-point tensors"


def test_a_skip_pattern_declines_and_says_so(patterns, images):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = patterns

        def forward(self, x):
            return self.inner(x)

    prepared = AddQuantDequantPass(skip_pattern="inner").apply(quaver.capture(Wrapped(), (images,)))

    assert not any(op.quantized for op in prepared.ops())
    assert records(prepared)["elementwise_add"].reason == "its scope 'inner' contains the skip pattern 'inner'"


def test_a_program_without_the_op_keeps_its_graph():
    program = quaver.capture(nn.Sequential(nn.Conv2d(8, 8, 1)), IMAGES)

    prepared = AddQuantDequantPass().apply(program)

    for mode in ("train", "eval"):
        assert [str(node) for node in prepared.graphs[mode].nodes] == [str(node) for node in program.graphs[mode].nodes]


def test_quant_aware_leaves_the_reshape_of_a_head_float():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 6, 1)

        def forward(self, x):
            return self.conv(x).flatten(2).permute(0, 2, 1)

    prepared = quaver.quant_aware(Head(), example_inputs=IMAGES)

    assert records(prepared)["transpose"].reason == "no quantized op computes on its output"
    assert records(prepared)["flatten"].reason == "no quantized op computes on its output"


def test_passes_for_different_engines_are_refused():
    prepared = QuantizationTransformPass().apply(quaver.capture(Net(torch.add, inputs=2), IMAGES))

    with pytest.raises(ConfigError, match=r"placed quantizers for 'openvino', and engines differ .* the same target"):
        AddQuantDequantPass(target="onnx").apply(prepared)


def test_an_op_with_a_weight_is_not_this_passs_business():
    with pytest.raises(ConfigError, match="quantizable_op_type=\\['conv2d'\\]: takes a list of names from assign, concat"):
        AddQuantDequantPass(quantizable_op_type=["conv2d"])


def matrix_product(**config):
    return records(quaver.quant_aware(Net(torch.matmul, inputs=2), config, example_inputs=IMAGES))["matmul"]


def test_by_default_a_product_of_two_activations_stays_float_where_it_could_overflow_and_says_so():
    reason = "products of two activations can overflow 16 bits without VNNI; saturation_safe=False quantizes it"

    assert matrix_product().reason == reason
    assert matrix_product(target="onnx").reason == reason


@pytest.mark.parametrize(
    "config",
    [
        {"saturation_safe": False},
        {"activation_bits": 7},
        {"quantize_op_types": ["conv2d", "matmul"]},
    ],
    ids=str,
)
def test_a_product_of_two_activations_is_quantized_where_it_cannot_overflow_or_is_asked_for(config):
    assert matrix_product(**config).quantized


def branches(target):
    """Which operands of ``conv + x`` are rounded, in the order of the sum; and in training."""
    net = Net(torch.add)
    net.forward = lambda x: net.convs[0](x) + torch.tanh(x)
    prepared = AddQuantDequantPass(target=target).apply(quaver.capture(net, IMAGES))
    sums = [node for mode in ("eval", "train") for node in prepared.graphs[mode].nodes if "aten.add" in str(node.target)]
    return [[bool(quantizer_of(value)) for value in add.args] for add in sums]


@pytest.mark.parametrize("target", ["onnx", "executorch"])
def test_a_target_that_adds_apart_rounds_the_convolution_before_the_sum(target):
    assert branches(target) == [[True, True]] * 2


def test_a_target_that_adds_inside_the_convolution_rounds_only_the_other_operand():
    assert branches("openvino") == [[False, True]] * 2


class Queries(nn.Module):
    """The first layers of a detector's decoder: what they read is the same for all images."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, 5, 8))
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        queries = self.queries.repeat(x.shape[0], 1, 1)
        mixed = self.last(x.flatten(2).transpose(1, 2) + x.flatten(2).transpose(1, 2).relu())
        return self.first(queries) + queries, mixed


def test_a_sum_with_what_is_the_same_for_all_images_stays_float():
    program = quaver.quant_aware(Queries(), example_inputs=(torch.randn(2, 8, 2, 2),))

    sums = {op.name: op for op in program.ops() if op.type == "elementwise_add"}

    assert {name: op.quantized for name, op in sums.items()} == {"elementwise_add": True, "elementwise_add_1": False}
    assert "the same for all images" in str(sums["elementwise_add_1"].why)


@pytest.mark.slow
def test_layers_that_read_a_constant_run_on_the_engine_as_they_were_trained(tmp_path):
    pytest.importorskip("openvino")
    torch.manual_seed(0)
    program = quaver.quant_aware(Queries(), example_inputs=(torch.randn(2, 8, 2, 2),))
    program.train()(torch.randn(4, 8, 2, 2))
    frozen = quaver.convert(program.eval())

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path), [torch.randn(4, 8, 2, 2)])

    assert result.integers_equal == 1
    assert result.passed
