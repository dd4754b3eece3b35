"""Skipped where LiteRT is not installed (``pip install 'quaver[litert]'``)."""

import importlib
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from mobiles import Doubled, mobile_program
from needs import need_litert
from quaver.engines.litert import layers
from quaver.engines.litert.flatbuffer import File, QParams, schema, unpacked
from quaver.engines.litert.runner import LiteRTRunner, engine
from quaver.engines.litert.writer import serialized
from quaver.errors import EngineError, StageError
from quaver.export.integers import Inside, simulation
from quaver.int8.requantize import Output
from quaver.xnnpack import arithmetic

need_litert()

pytestmark = pytest.mark.slow

conftest = importlib.import_module("conftest")


class Steps(nn.Module):
    """Layers by name, and a forward given as a function of the module and the images."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.steps = forward

    def forward(self, x):
        return self.steps(self, x)


def between(*layers):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers, nn.Conv2d(8, 4, 1))


def noise(count=16, size=16):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(7))


def mobile(make):
    torch.manual_seed(0)
    return mobile_program(make(), (8, 3, 16, 16)).made_for("litert")


@pytest.fixture(scope="module")
def shared():
    """The shared net: all ops of the usual kinds."""
    return mobile(conftest.Patterns)


def ops_in(content):
    """The ops of a file, in order."""
    model, names = unpacked(content), {number: name for name, number in vars(schema().BuiltinOperator).items()}
    return [names[model.operatorCodes[op.opcodeIndex].builtinCode] for op in model.subgraphs[0].operators]


def differing(program, file):
    """How many of LiteRT's integers are not the program's, by tensor; and the outputs of both."""
    ours = simulation(program)
    outputs, integers = ours.run(noise())
    theirs, whole = Inside.of(file, ours.scales).run(noise().numpy())
    assert set(whole) == set(integers)
    assert all(len(np.unique(values)) > 8 for values in whole.values() if values.size > 1000)
    return {name: int((integers[name] != whole[name]).sum()) for name in whole}, outputs[0].numpy(), theirs[0]


def mean_file(shape, grid, output):
    """A file of one mean over height and width."""
    file = File()
    x = file.tensor("x", shape, np.int8, grid)
    y = file.tensor("y", (1, 1, 1, shape[-1]), np.int8, output)
    file.op("MEAN", [x, file.constant("axes", np.array([1, 2], np.int32))], y, keepDims=True)
    return file.finished({"x": x}, {"y": y})


def nearly_ties(rng, pixels, channels, ratio, zero_point):
    """Stored integers (pixels, channels) whose mean lies as near the middle of two steps as a whole sum can."""
    sums = np.rint((rng.integers(-120, 120, channels) + 0.5) * pixels / ratio) + pixels * zero_point
    sums = np.clip(sums, -128 * pixels, 127 * pixels).astype(int)
    return (sums // pixels + (np.arange(pixels)[:, None] < sums % pixels)).astype(np.int8)


def test_a_mean_comes_to_the_same_side_of_every_tie():
    rng, wrong, channels = np.random.default_rng(0), 0, 256
    for turn in range(60):
        (height, width), zeros = rng.integers(1, 15, 2), ((-128, 7)[turn % 2], (-128, 0, 41)[turn % 3])
        step = np.float32(rng.uniform(0.01, 0.1))
        wide = np.float32(step * rng.integers(20, 400) / np.float32(rng.integers(20, 60)))
        x = nearly_ties(rng, height * width, channels, float(wide) / float(step), zeros[0])
        x = x.reshape(1, height, width, channels)

        grids = [QParams.of(*grid) for grid in zip((wide, step), zeros, strict=True)]
        model = engine().Interpreter(model_content=mean_file(x.shape, *grids))
        model.allocate_tensors()
        model.set_tensor(model.get_input_details()[0]["index"], x)
        model.invoke()

        own = torch.from_numpy(x).float().permute(0, 3, 1, 2) - zeros[0]
        output = Output(float(step), -128 - zeros[1], 127 - zeros[1])
        ours = arithmetic.mean(own, float(wide), zeros, [2, 3], True, output).flatten() + zeros[1]
        theirs = model.get_tensor(model.get_output_details()[0]["index"]).reshape(-1)
        wrong += int((ours.numpy() != theirs).sum())

    assert wrong == 0


PATTERNS = {
    "the shared net": conftest.Patterns,
    "strides, padding": lambda: between(nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, (3, 5), (1, 2), (1, 2))),
    "dilation, groups": lambda: between(
        nn.Conv2d(8, 8, 3, dilation=2), nn.ReLU6(), nn.Conv2d(8, 16, 3, groups=4), nn.Conv2d(16, 8, 1)
    ),
    "two filters per channel": lambda: between(nn.Conv2d(8, 16, 3, groups=8), nn.ReLU(), nn.Conv2d(16, 8, 1)),
    "narrow clamp": lambda: between(nn.Hardtanh(-0.3, 0.2)),
    "transposed, cut": lambda: between(nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1), nn.ReLU()),
    "max pool of signed, padded": lambda: between(nn.MaxPool2d(3, 2, 1)),
    "max pool of unsigned, padded": lambda: between(nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    "max pool, to the ceiling": lambda: between(nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
    "average pools": lambda: between(
        nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(3)
    ),
    "swish, leaky, sigmoid": lambda: between(
        nn.SiLU(), nn.Conv2d(8, 8, 1), nn.LeakyReLU(), nn.Conv2d(8, 8, 1), nn.Sigmoid()
    ),
    "channel shuffle": lambda: Steps(
        lambda s, x: s.b(s.a(x).view(-1, 2, 4, 16, 16).transpose(1, 2).reshape(-1, 8, 16, 16)),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(8, 4, 1),
    ),
    "excite": lambda: Steps(
        lambda s, x: (y := F.relu(s.a(x))) * torch.sigmoid(s.b(y.mean((2, 3), keepdim=True))),
        a=nn.Conv2d(3, 8, 3),
        b=nn.Conv2d(8, 8, 1),
    ),
    "difference, split": lambda: Steps(
        lambda s, x: s.b(torch.cat([*(y := s.a(x)).chunk(2, 1)][::-1], 1) - y), a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 4, 1)
    ),
    "pixels, resized": lambda: Steps(
        lambda s, x: s.b(F.interpolate(F.pixel_shuffle(s.a(x), 2), scale_factor=0.5, mode="bilinear")),
        a=nn.Conv2d(3, 8, 3),
        b=nn.Conv2d(2, 4, 1),
    ),
    "padded, sliced": lambda: Steps(
        lambda s, x: s.b(F.pad(s.a(x), (1, 2, 3, 0))[:, :, 1:, ::2]), a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 4, 1)
    ),
    "flattened, linear": lambda: Steps(
        lambda s, x: s.c(F.relu(s.b(F.max_pool2d(s.a(x), 4).flatten(1)))),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Linear(128, 16),
        c=nn.Linear(16, 5),
    ),
    "along a line": lambda: between(
        nn.Flatten(2),
        nn.Conv1d(8, 8, 9, 2, 4),
        nn.ReLU(),
        nn.Conv1d(8, 16, 3, padding="same", dilation=2, groups=8),
        nn.BatchNorm1d(16),
        nn.ReLU6(),
        nn.Conv1d(16, 8, 1, groups=2),
        nn.Unflatten(2, (8, 16)),
    ),
    "linear of the last dimension": lambda: Steps(
        lambda s, x: s.b(s.a(x).flatten(2).transpose(1, 2)).softmax(-1), a=nn.Conv2d(3, 8, 4, 4), b=nn.Linear(8, 6)
    ),
}


def test_a_convolution_along_a_line_is_one_in_int8():
    torch.manual_seed(0)
    program = mobile_program(PATTERNS["along a line"](), (8, 3, 16, 16), {"target": "litert"})

    assert "5 of 5 convolutions and linear layers in int8" in str(program)
    assert ops_in(serialized(program, {})).count("DEQUANTIZE") == 1  # of the result


@pytest.mark.parametrize("name", PATTERNS)
def test_every_integer_inside_is_the_simulations(name, tmp_path):
    program = mobile(PATTERNS[name])
    file = quaver.export(program, tmp_path, target="litert")

    counts, expected, output = differing(program, file)

    assert not any(counts.values()), counts
    assert np.abs(output - expected).max() <= 1e-6 * np.abs(expected).max()  # a softmax in float ends one of them


def wrong_bias(t, node, steps, right=layers.bias_of):
    bias = right(t, node, steps)
    return t.constant(bias.array + 40, bias.grid)


def test_a_wrong_integer_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "bias_of", wrong_bias)

    with pytest.raises(EngineError, match="is not what the program computes"):
        quaver.export(mobile(lambda: between(nn.ReLU())), tmp_path, target="litert")


def test_xnnpack_takes_a_whole_network(shared):
    *ops, delegate = LiteRTRunner(serialized(shared, {})).interpreter._get_ops_details()

    assert delegate["op_name"] == "DELEGATE"
    assert list(delegate["outputs"]) == list(ops[-1]["outputs"])
    assert 0 in delegate["inputs"]  # the images


def test_weights_are_int8_with_a_step_per_channel_and_biases_int32():
    program = mobile(lambda: between(nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()))
    tensors, types = unpacked(serialized(program, {})).subgraphs[0].tensors, schema().TensorType
    weights = [tensor for tensor in tensors if tensor.name.endswith(b".weight")]
    biases = [tensor for tensor in tensors if tensor.name.endswith(b".bias")]

    assert [tensor.type for tensor in weights] == [types.INT8] * 3
    assert [(len(w.quantization.scale), w.quantization.quantizedDimension) for w in weights] == [(8, 0), (8, 3), (4, 0)]
    assert not any(zero for w in weights for zero in w.quantization.zeroPoint)
    assert [tensor.type for tensor in biases] == [types.INT32] * 3


def test_what_is_on_a_grid_moves_as_integers():
    ops = ops_in(serialized(mobile(PATTERNS["difference, split"]), {}))

    assert ops.count("QUANTIZE") == ops.count("DEQUANTIZE") == 1
    assert ops.count("STRIDED_SLICE") == 2


def test_images_are_transposed_once(shared):
    ops = ops_in(serialized(shared, {}))

    assert ops.count("TRANSPOSE") == 1  # channels first, as PyTorch gives them


def test_a_float_program_computes_what_it_computes_in_float(tmp_path):
    torch.manual_seed(0)
    net = conftest.Patterns().eval()
    program = quaver.capture(net, (torch.zeros(2, 3, 16, 16),)).eval()

    file = quaver.export(program, tmp_path, target="litert")

    x = noise()
    with torch.no_grad():
        expected = net(x).numpy()
    assert np.abs(quaver.runtime.load(file)(x.numpy()) - expected).max() < 1e-4 * np.abs(expected).max()


def test_equal_programs_make_equal_files():
    first, second = (serialized(mobile(lambda: between(nn.ReLU())), {}) for _ in range(2))

    assert first == second


def test_an_op_that_has_no_form_is_named():
    torch.manual_seed(0)
    program = quaver.capture(Steps(lambda s, x: torch.cummax(s.a(x), 1)[0], a=nn.Conv2d(3, 4, 1)), (noise(2),))

    with pytest.raises(EngineError, match=r"LiteRT: .*there is no form of 'cummax' in a \.tflite file"):
        serialized(program.eval(), {})


def test_a_result_for_the_batch_as_a_whole_is_refused():
    torch.manual_seed(0)
    program = quaver.capture(Steps(lambda s, x: s.a(x).sum(0), a=nn.Conv2d(3, 4, 1)), (noise(2),))

    with pytest.raises(EngineError, match="LiteRT: output 0 of the model has no batch in front"):
        serialized(program.eval(), {})


def test_a_program_in_another_form_is_refused():
    torch.manual_seed(0)
    qat = quaver.quant_aware(between(nn.ReLU()), example_inputs=(noise(2),)).train()
    qat(noise(2))

    with pytest.raises(StageError, match="this one is frozen"):
        serialized(quaver.convert(qat), {})


def test_verify_compares_every_tensor(tmp_path):
    torch.manual_seed(0)
    qat = quaver.quant_aware(conftest.Patterns(), {"target": "litert"}, example_inputs=(noise(2),)).train()
    qat(noise(8))
    frozen = quaver.convert(qat)
    file = quaver.export(frozen, tmp_path, target="litert")

    result = quaver.verify(frozen, file, [(noise(), torch.zeros(16).long())])

    assert result.passed
    assert result.agreement == 1
    assert "equal at all" in str(result)


def test_padding_is_pytorchs_for_any_size(tmp_path):
    for kernel, stride, padding, size in itertools.product((2, 3), (1, 2), (0, 1), (7, 8)):
        layer = nn.Conv2d(3, 2, kernel, stride, padding)
        pool = nn.MaxPool2d(kernel, stride, padding)
        program = quaver.capture(nn.Sequential(layer, pool), (torch.zeros(2, 3, size, size),)).eval()

        output = LiteRTRunner(serialized(program, {}))(noise(2, size).numpy())

        with torch.no_grad():
            assert np.allclose(output, program(noise(2, size)).numpy(), atol=1e-5), (kernel, stride, padding, size)


def test_what_is_written_in_place_is_a_new_tensor_in_the_file():
    program = mobile(Doubled).eval()

    output = LiteRTRunner(serialized(program, {}))(noise().numpy())

    with torch.no_grad():  # the last convolution is a float one: its input is written into, and has no quantizer
        torch.testing.assert_close(torch.from_numpy(output), program(noise()))


class Positions(nn.Module):
    """A layer that reads what depends on no image, as a table of positions does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(2, 4, 1)
        self.register_buffer("places", torch.linspace(0, 9, 2 * 14 * 14).view(1, 2, 14, 14))

    def forward(self, x):
        return self.first(x) + self.second(self.places.sin().expand(x.shape[0], -1, -1, -1))


def test_a_layer_reads_a_constant_as_its_integers(tmp_path):
    program = mobile(Positions)

    result = quaver.verify(program, quaver.export(program, tmp_path, target="litert"), [noise()])

    assert result.passed
    assert "equal at all" in str(result)


def table(net, x):
    """A table of positions that is not repeated for each image."""
    rows = torch.arange(x.shape[2], dtype=torch.float32)
    places = torch.stack([rows[:, None] + rows, rows[:, None] - rows])[None]
    return net.first(x) + net.second(places).relu()


def sequence(net, x):
    """Images in the second dimension, as recurrent networks and `nn.MultiheadAttention` have them."""
    return net.last(net.inner(x.flatten(2).permute(2, 0, 1)).relu()).permute(1, 0, 2)


def windows(net, x):
    """Four strips of each image, one behind the other."""
    strips = x.unflatten(3, (4, 4)).permute(0, 3, 1, 2, 4).flatten(0, 1)
    return net.last(net.inner(strips).relu()).unflatten(0, (-1, 4))


BATCHES = {
    "the same for all images": lambda: Steps(table, first=nn.Conv2d(3, 4, 1), second=nn.Conv2d(2, 4, 1)),
    "images in another dimension": lambda: Steps(sequence, inner=nn.Linear(3, 8), last=nn.Linear(8, 4)),
    "several of each image": lambda: Steps(windows, inner=nn.Conv2d(3, 8, 1), last=nn.Conv2d(8, 4, 1)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_images_are_put_together_where_they_lie_in_a_tensor(name, tmp_path):
    program = mobile(BATCHES[name])

    result = quaver.verify(program, quaver.export(program, tmp_path, target="litert"), [noise()])

    assert result.passed
    assert "equal at all" in str(result)


class Joined(nn.Module):
    """One layer for queries, keys and values, of which the keys have no bias (EVA, BEiT)."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(3, 12, bias=False), nn.Linear(12, 4)
        self.queries, self.values = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.register_buffer("keys", torch.zeros(4))

    def forward(self, x):
        bias = torch.cat([self.queries, self.keys, self.values])
        return self.last(F.linear(x.flatten(2).mT, self.layer.weight, bias).relu())


def test_a_bias_may_be_computed_from_parameters(tmp_path):
    program = mobile(Joined)

    result = quaver.verify(program, quaver.export(program, tmp_path, target="litert"), [noise()])

    assert "2 of 2 convolutions and linear layers in int8" in str(program)
    assert "equal at all" in str(result)


def test_a_wrong_integer_is_told_however_tensors_lie_in_memory(tmp_path, monkeypatch):
    program = mobile(  # the file's images have their channels last, and a view asks for the order that they have here
        lambda: Steps(lambda s, x: s.b(s.a(x).relu().view(len(x), -1)), a=nn.Conv2d(3, 4, 3), b=nn.Linear(784, 4))
    )
    monkeypatch.setattr(layers, "bias_of", wrong_bias)

    with pytest.raises(EngineError, match=r"'relu': \d+ of 6272 integers differ"):
        quaver.export(program, tmp_path, target="litert")
