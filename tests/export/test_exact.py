"""Engines compute what the simulation computes: every integer of every quantized tensor, on every processor."""

import json
import platform
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import exact_nets
import quaver
from exact_nets import IMAGES, NETS, ON_OPENVINO, bare, conv, differences, fresh, frozen, write
from limits import AN_HOUR
from quaver.engines.openvino.barriers import keep_apart
from quaver.engines.openvino.runner import OpenVINORunner, ov
from quaver.export.integers import simulation
from quaver.machine.cpu import cpu
from quaver.measure.executed_layers import layers, products_in_int8
from quaver.operators import OPS, packets_of
from quaver.program import EVAL

pytestmark = pytest.mark.slow

UNSAFE = "Odd, not safe"
WITHOUT_VNNI = ["AVX2", "AVX512_CORE"]
# What oneDNN can be limited to; a limit above what this machine has changes nothing. Below AVX2 there is no fused
# multiply-add, which the simulation counts on: one integer of a thousand images is then another.
PROCESSORS = [
    *WITHOUT_VNNI,
    "AVX2_VNNI",
    "AVX2_VNNI_2",
    "AVX512_CORE_VNNI",
    "AVX512_CORE_BF16",
    "AVX512_CORE_FP16",
    *([] if cpu().amx_doubt else ["AVX512_CORE_AMX"]),  # which would kill the engine
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every net as a file, with what the simulation gives for it."""
    root = tmp_path_factory.mktemp("exact")
    for name in NETS | ON_OPENVINO:
        write(frozen(fresh(name)), root / name, images=IMAGES.get(name, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a processor without VNNI computes something else, and export says so
        write(frozen(fresh("Odd"), saturation_safe=False), root / UNSAFE)
    return root


@pytest.fixture(scope="module")
def on_processor(folder):
    """The differences of every net, by processor."""
    command = [sys.executable, exact_nets.__file__, str(folder), *PROCESSORS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AN_HOUR)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_none_differs(found, tensors, shown=0.6):
    assert {name: count for name, count in found.items() if count} == {}
    assert len(found) - 2 >= shown * tensors  # the outputs aside; not in the file, or not shown, is what is only moved


SHOWN = {"MovedSums": 0.5}
"""Of the tensors, where fewer are: this net moves most of its own before a sum, which hides them."""


def tensors_of(folder):
    return len(json.loads((folder / "scales.json").read_text()))


@pytest.mark.parametrize("name", NETS | ON_OPENVINO)
def test_the_engine_gives_every_integer_of_the_simulation(folder, name):
    assert_none_differs(differences(folder / name), tensors_of(folder / name), SHOWN.get(name, 0.6))


@pytest.mark.parametrize("name", NETS)
def test_onnx_runtime_gives_every_integer_of_a_program_for_it(tmp_path, name):
    write(frozen(fresh(name), target="onnx"), tmp_path, "onnx")

    found = differences(tmp_path, tolerance=1e-4)  # the last layer's output is not quantized: it is summed in float

    assert_none_differs(found, tensors_of(tmp_path))


@pytest.mark.parametrize("weights", ["channel_wise_abs_max", "abs_max"])
@pytest.mark.parametrize("gamma", [0.0, 1e-12, 1e-7])
def test_onnx_runtime_counts_the_bias_of_a_channel_without_weights_right(tmp_path, gamma, weights):
    torch.manual_seed(0)
    net = nn.Sequential(conv(), conv(), nn.Conv2d(8, 4, 1))
    nn.init.uniform_(net[0][1].bias, 0.2, 1)
    net[0][1].weight.requires_grad_(False)[3] = gamma
    write(frozen(net, target="onnx", weight_quantize_type=weights), tmp_path, "onnx")

    assert_none_differs(differences(tmp_path, tolerance=1e-4), tensors_of(tmp_path))


@pytest.mark.parametrize("bits", [2, 4])
def test_onnx_runtime_computes_on_few_bits_what_was_trained(tmp_path, bits):
    torch.manual_seed(0)
    net = nn.Sequential(conv(), conv(groups=8, act=nn.ReLU6), conv(size=1, act=None), nn.Conv2d(8, 4, 1))
    for norm in (layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)):
        nn.init.uniform_(norm.bias, -1, 1)
    program = frozen(net, target="onnx", weight_bits=bits, activation_bits=bits)
    file = write(program, tmp_path, "onnx")

    assert_none_differs(differences(tmp_path, tolerance=1e-4), tensors_of(tmp_path))
    assert products_in_int8(layers(file, "onnxruntime", rounds=1)) == (3, 4)
    expected = np.load(tmp_path / "expected.npz")
    as_trained = program.copy(placements=replace(program.placements, target="openvino"))
    _, trained = simulation(as_trained).run(torch.from_numpy(expected["images"]))
    changed = {name: (expected[f"at {name}"] != whole).mean() for name, whole in trained.items()}
    assert max(changed.values()) < 0.002  # by a bias in steps of the sum; in the coarse steps of few bits it was 1 %


class ComputedBias(nn.Conv2d):
    """A convolution whose bias is computed in every forward, from parameters alone."""

    def forward(self, x):
        return F.conv2d(x, self.weight, 2 * self.bias)


@pytest.mark.parametrize("first", [nn.Conv2d(8, 6, 3, bias=False), ComputedBias(8, 6, 3)], ids=["missing", "computed"])
def test_onnx_runtime_takes_a_bias_that_is_missing_or_computed(tmp_path, first):
    write(frozen(nn.Sequential(first, nn.ReLU(), nn.Conv2d(6, 4, 1)), target="onnx"), tmp_path, "onnx")

    assert_none_differs(differences(tmp_path, tolerance=1e-4), tensors_of(tmp_path))


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_an_average_pool_may_divide_by_a_number_of_its_own(tmp_path, target):
    pools = [
        nn.AvgPool2d(2, divisor_override=3),
        nn.AvgPool2d(3, 1, 1, count_include_pad=False, divisor_override=5),
    ]
    net = nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU(), pools[0], nn.Conv2d(4, 4, 1), pools[1], nn.Conv2d(4, 4, 1))
    write(frozen(net, target=target), tmp_path, target)

    assert_none_differs(differences(tmp_path, tolerance=1e-4), tensors_of(tmp_path))


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_padding_may_wrap_around(tmp_path, target):
    first, second = (nn.Conv2d(8, 8, 3, padding=padding, padding_mode="circular") for padding in ((2, 0), (0, 1)))
    write(frozen(nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(8, 4, 1)), target=target), tmp_path, target)

    assert_none_differs(differences(tmp_path, tolerance=1e-4), tensors_of(tmp_path))


class PerPosition(nn.Module):
    """A factor for each of L in (N, L, C)."""

    def __init__(self, positions):
        super().__init__()
        self.factors = nn.Parameter(torch.linspace(0.2, 3, positions).view(1, -1, 1))

    def forward(self, x):
        return x * self.factors


@pytest.mark.parametrize("scaling", [nn.BatchNorm1d(96), PerPosition(96)], ids=["batch norm", "product"])
def test_openvino_scales_the_positions_behind_a_linear_layer_each_by_its_own_factor(tmp_path, scaling):
    if isinstance(scaling, nn.BatchNorm1d):
        nn.init.uniform_(scaling.weight, 0.2, 3)
    net = nn.Sequential(nn.Flatten(1, 2), nn.Linear(12, 6), scaling, nn.ReLU(), nn.Linear(6, 5))
    write(frozen(net), tmp_path)

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


class ReadTwice(nn.Module):
    """A convolution without bias on a signed tensor, whose output is concatenated, and read by a float op."""

    def __init__(self):
        super().__init__()
        self.first, self.left, self.right, self.joined = conv(act=None), bare(), bare(), bare(16, 8)

    def forward(self, x):
        y = self.left(self.first(x))
        return self.joined(torch.cat([y, self.right(x)], 1)) * (y.abs() < 0.5)


def test_openvino_rounds_a_layer_without_bias_that_is_also_read_unrounded(tmp_path):
    write(frozen(ReadTwice()), tmp_path)

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


class OnlyMoved(nn.Module):
    """An input that no layer reads as it is."""

    def __init__(self):
        super().__init__()
        self.pooled, self.flat, self.mean = conv(), nn.Conv1d(8, 8, 3), nn.Linear(8, 8)

    def forward(self, x):
        return self.pooled(F.max_pool2d(x, 2)).mean((2, 3)) + self.flat(x.flatten(2)).mean(2) + self.mean(x.mean((2, 3)))


def test_openvino_rounds_an_input_that_no_layer_reads_as_it_is(tmp_path):
    torch.manual_seed(0)
    write(frozen(OnlyMoved()), tmp_path, images=1000)

    found = differences(tmp_path, tolerance=1e-5)  # a sum that nothing rounds

    assert_none_differs(found, tensors_of(tmp_path))


class QuantizedSums(nn.Module):
    """Sums of tensors that are rounded already: moved, pooled, read by others too, and sums themselves."""

    def __init__(self):
        super().__init__()
        self.halves = nn.ModuleList(conv(act=nn.ReLU if place % 2 else None) for place in range(8))
        self.first, self.second, self.third = conv(act=None), conv(), conv(act=None)
        self.behind = nn.ModuleList(conv(act=None) for _ in range(9))

    def forward(self, x):
        half = [F.interpolate(layer(F.max_pool2d(x, 2)), scale_factor=2.0) for layer in self.halves]
        first, second, third = self.first(x), self.second(x), self.third(x)
        sums = [half[0] + half[1], second + first, first + F.avg_pool2d(second, 3, 1, 1), half[2] + half[3] + third]
        sums += [F.relu(second + half[4]), F.relu(half[5] + half[6] + half[7]), first, second, third]
        return torch.cat([layer(one) for layer, one in zip(self.behind, sums, strict=True)], 1)


class QuantizedProducts(nn.Module):
    """Products of tensors that are rounded already, added to another one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(conv(act=None if place % 3 else nn.ReLU) for place in range(6))
        self.behind = nn.ModuleList(conv(act=None) for _ in range(12))

    def forward(self, x):
        rounded = [layer(x) for layer in self.layers]
        sums = [first * second + first for first, second in zip(rounded, rounded[1:] + rounded[:1], strict=True)]
        return torch.cat([layer(one) for layer, one in zip(self.behind, sums + rounded, strict=True)], 1)


def with_plain_steps(program):
    """The program with steps of few bits, so that sums of integers often end at a tie."""
    plain = {}
    for graph in program.graphs.values():
        for node in graph.nodes:
            if node.op == "call_function" and "quantize_per_tensor" in str(node.target):
                step = node.args[1]
                odd = (3, 5, 7, 9, 11, 13, 15)[len(plain) % 7]
                node.args = (
                    node.args[0],
                    plain.setdefault(step, odd * 2.0 ** float(np.round(np.log2(step / odd)))),
                    *node.args[2:],
                )
    return program


def test_openvino_adds_quantized_tensors_in_steps_of_one_of_them(tmp_path):
    torch.manual_seed(0)
    write(with_plain_steps(frozen(QuantizedSums())), tmp_path, images=1500)

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


def test_openvino_rounds_a_product_of_quantized_tensors_with_the_shift(tmp_path):
    torch.manual_seed(0)
    write(with_plain_steps(frozen(QuantizedProducts())), tmp_path, images=300)

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


class Product(nn.Module):
    """A product of what two convolutions give, shuffled, with steps by which a few products of integers are next to ties."""

    STEPS = (0.00025998055934906006, 0.006978392601013184, 9.129755198955536e-05)  # a gate of FocalNet's

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (nn.Conv2d(*sizes, 3) for sizes in ((8, 8), (8, 8), (2, 8)))
        for layer, step in zip((self.first, self.second), self.STEPS, strict=False):
            layer.weight.data *= 50 * step
            layer.bias.data *= 50 * step

    def forward(self, x):
        return self.last(F.pixel_shuffle(self.first(x), 2) * F.pixel_shuffle(self.second(x), 2))


def test_openvino_multiplies_quantized_tensors_by_the_product_of_their_steps(tmp_path):
    torch.manual_seed(0)
    program = frozen(Product())
    roundings = [node for node in program.graphs[EVAL].nodes if "quantize_per_tensor" in str(node.target)]
    by_tensor = (roundings[2:6], roundings[6:10], roundings[10:])  # the layers', shuffled too, and the product's
    for step, nodes in zip(Product.STEPS, by_tensor, strict=True):
        for node in nodes:
            node.args = (node.args[0], step, *node.args[2:])
    write(program, tmp_path, images=2000)

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


def test_openvino_runs_a_layer_that_is_used_twice_in_int8(tmp_path):
    layer = nn.Conv2d(8, 8, 3)

    file = write(frozen(nn.Sequential(layer, nn.ReLU(), layer)), tmp_path)

    assert products_in_int8(layers(file, "openvino", rounds=1)) == (2, 2)
    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


class SmallResiduals(nn.Module):
    """Layer norms of sums whose variance is not far from epsilon, as a layer scale of 1e-4 leaves them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)
        self.norms = nn.ModuleList(nn.LayerNorm(12, eps=1e-5) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))

    def forward(self, x):
        x = self.first(x.flatten(1, 2)) * 0.01
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + 0.01 * layer(norm(x))
        return self.last(x)


def test_openvino_keeps_the_epsilon_of_a_norm_of_integers(tmp_path):
    torch.manual_seed(0)
    program = frozen(SmallResiduals())

    result = quaver.verify(program, quaver.export(program, tmp_path), [torch.randn(16, 8, 12, 12)])

    assert result.passed  # a mean of floats has an order of the engine's own, so not bit for bit


class Largest(nn.Module):
    """The largest of what a linear layer gives along an axis, as an auxiliary head takes it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(12, 12), nn.Linear(12, 6), nn.Linear(6, 5)

    def forward(self, x):
        return self.last(self.second(self.first(x.flatten(1, 2))).amax(1))


def test_openvino_rounds_the_largest_of_a_linear_layer(tmp_path):
    torch.manual_seed(0)
    write(frozen(Largest()), tmp_path)

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


class Perceptron(nn.Module):
    """A linear layer with a signed activation, read by a linear layer alone or added to what that gives."""

    def __init__(self, residual):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(12, 192), nn.Linear(192, 192), nn.Linear(192, 5)
        self.residual = residual

    def forward(self, x):
        y = F.hardswish(self.first(x.flatten(1, 2)))
        return self.last(y + self.second(y) if self.residual else F.dropout(y, 0.1, self.training))


@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
def test_openvino_rounds_a_linear_layer_for_another_without_a_shift(tmp_path, residual):
    torch.manual_seed(0)
    write(frozen(Perceptron(residual)), tmp_path, images=200)  # one of some hundred thousand integers would be another

    assert_none_differs(differences(tmp_path), tensors_of(tmp_path))


def rounded_twice(share):
    """A model that rounds a tensor to one step, takes a part of it and rounds that to another, that many times as large."""
    ops = ov.opset13
    x = ops.parameter([1, 256], np.float32)
    rounded = ops.fake_quantize(x, *map(np.float32, (-12.8, 12.7, -12.8, 12.7)), 256)
    part = ops.variadic_split(rounded, np.array(1), np.array([255, 1])).output(0)
    ends = [np.float32(end * share) for end in (-12.8, 12.7, -12.8, 12.7)]
    return ov.Model([ops.fake_quantize(part, *ends, 256)], [x], "twice")


@pytest.mark.parametrize(("share", "barriers"), [(1.0, 0), (0.9953, 1), (1.05, 0)], ids=["equal", "nearly equal", "other"])
def test_openvino_executes_a_rounding_of_nearly_the_same_step(share, barriers):
    model = rounded_twice(share)
    keep_apart(model)
    integers = np.arange(-128, 128, dtype=np.float32)

    (got,) = OpenVINORunner(model)((integers * np.float32(0.1))[None])

    assert sum(op.get_type_name() == "Maximum" for op in model.get_ops()) == barriers
    assert np.array_equal(np.rint(got / np.float32(0.1 * share)), np.clip(np.rint(integers[:-1] / share), -128, 127))


# the last layer, whose output is not quantized; transposed ones; and one whose output a second clamp reads unrounded
FLOAT_ON_ONNX_RUNTIME = {
    "MobileNet": 1,
    "Residuals": 1,
    "Branches": 3,
    "Signed": 1,
    "Moved": 2,
    "Odd": 1,
    "Bare": 1,
    "Scaled": 1,
    "PreActivated": 5,  # four that a batch norm, which is float there, reads unrounded
    "Sound": 2,  # the last convolution's result is not rounded, but the average of it
}


@pytest.mark.parametrize("name", NETS)
def test_onnx_runtime_runs_convolutions_and_linear_layers_in_int8(tmp_path, name):
    file = write(frozen(fresh(name), target="onnx"), tmp_path, "onnx")

    in_int8, products = products_in_int8(layers(file, "onnxruntime", rounds=1))

    assert products - in_int8 == FLOAT_ON_ONNX_RUNTIME[name]


x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="another processor's instructions")


@x86
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", NETS | ON_OPENVINO)
def test_every_kind_of_processor_gives_the_same(on_processor, folder, name, processor):
    assert_none_differs(on_processor[processor][name], tensors_of(folder / name), SHOWN.get(name, 0.6))


@x86
@pytest.mark.parametrize("processor", WITHOUT_VNNI)
def test_without_saturation_safe_a_processor_without_vnni_gives_something_else(on_processor, processor):
    found = on_processor[processor][UNSAFE]

    assert found.pop("deployed output") > 100
    assert max(found.values()) > 100


class Activations(nn.Module):
    """Every activation that has a row, each between a convolution and the addition of a shortcut."""

    def __init__(self):
        super().__init__()
        self.names = sorted(packets_of("clamp", "activation"))
        self.before, self.convs = (nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in self.names) for _ in range(2))

    def forward(self, x):
        for name, before, convolution in zip(self.names, self.before, self.convs, strict=True):
            bounds = (-1.0, 1.0) if name in ("clamp", "hardtanh") else ()
            x = getattr(torch.ops.aten, name)(convolution(before(x).relu()), *bounds) + x
        return x


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="what OpenVINO fuses was looked at on x86")
def test_openvino_computes_an_activation_with_the_layer_and_the_sum_where_its_row_says_so(tmp_path):
    torch.manual_seed(0)  # a tie in a million is broken otherwise, and said
    net = Activations()

    executed = layers(quaver.export(frozen(net), tmp_path), "openvino", rounds=1)

    alone = sum(layer.type not in ("Convolution", "Reorder", "Reshape", "FakeQuantize", "Eltwise") for layer in executed)
    sums = sum(layer.type == "Eltwise" for layer in executed)
    assert [alone, sums] == [sum(not OPS[name].fused for name in net.names)] * 2
    assert [layer.type for layer in executed if "hard_sigmoid" in layer.ops] == ["Math"]
