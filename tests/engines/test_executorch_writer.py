"""Skipped where executorch is not installed (``pip install 'quaver[executorch]'``)."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from mobiles import Doubled, all_in_xnnpack_arithmetic, in_xnnpack_arithmetic, mobile_program, nodes, turned_inside_out
from needs import need_executorch
from quaver.engines.executorch.runner import ExecuTorchRunner
from quaver.engines.executorch.writer import lowered, serialized
from quaver.errors import EngineError, QuaverWarning, StageError

need_executorch()

pytestmark = pytest.mark.slow

conftest = importlib.import_module("conftest")


def noise(count, size):
    """Images of different brightness and contrast: a net that takes averages tells them apart."""
    generator = torch.Generator().manual_seed(7)
    brightness, contrast = torch.randn(2, count, 3, 1, 1, generator=generator)
    return brightness + contrast * torch.randn(count, 3, size, size, generator=generator)


class Gated(nn.Module):
    """What the shared net has not: squeeze and excite, transposed, an upsampling, a split, a mean, Mish."""

    def __init__(self):
        super().__init__()
        self.stem, self.down, self.up = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.wide, self.fc = nn.ConvTranspose2d(8, 8, 2, 2), nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = x * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        x = F.mish(self.wide(x))
        x = F.interpolate(torch.cat(x.chunk(2, 1)[::-1], 1), scale_factor=2, mode="bilinear")
        return self.fc(x.mean((2, 3)))


@pytest.fixture(scope="module")
def shared():
    """The shared net: all ops of the usual kinds, and a channel with hardly any weights and an ordinary bias."""
    torch.manual_seed(0)
    return mobile_program(conftest.Patterns())


@pytest.fixture(scope="module")
def manager(shared):
    return lowered(shared)


@pytest.fixture(scope="module")
def content(shared):
    return serialized(shared)[:-40]  # less the seal


def run(content, images):
    return torch.from_numpy(ExecuTorchRunner(content)(images.numpy()))


def delegated(manager):
    """The graphs that XNNPACK was given."""
    parts = manager.exported_program().graph_module.named_children()
    return [part.original_module.graph for _, part in parts if hasattr(part, "original_module")]


def test_the_file_computes_what_xnnpacks_arithmetic_says_bit_for_bit(shared, content):
    images = noise(64, 16)
    expected = in_xnnpack_arithmetic(shared, images)

    assert torch.equal(run(content, images), expected)
    assert expected.unique().numel() > 40  # they are not all alike


def test_every_tensor_inside_is_bit_equal(shared):
    program, images = turned_inside_out(shared), noise(4, 16)

    results = ExecuTorchRunner(serialized(program)[:-40])(images.numpy())

    assert len(results) == 14
    for result, expected in zip(results, all_in_xnnpack_arithmetic(program, images), strict=True):
        assert torch.equal(torch.from_numpy(result), expected)
        assert expected.unique().numel() > 10


def test_gates_transposed_convolutions_and_resizing_are_bit_equal_too():
    torch.manual_seed(0)
    program = mobile_program(Gated(), (8, 3, 17, 17))
    images = noise(32, 17)

    result = run(serialized(program)[:-40], images)

    assert torch.equal(result, in_xnnpack_arithmetic(program, images))
    assert result.unique().numel() > 50


def test_a_tensor_that_leaves_xnnpack_and_stays_there_is_the_same_in_both_places():
    torch.manual_seed(0)
    program, images = mobile_program(Doubled(), (8, 3, 9, 9)), noise(8, 9)

    # the last convolution is a float one: its input is written into, and has no quantizer
    torch.testing.assert_close(run(serialized(program)[:-40], images), in_xnnpack_arithmetic(program, images))


def test_convolutions_along_a_line_run_in_int8_and_are_bit_equal():
    torch.manual_seed(0)
    line = [nn.Conv1d(8, 16, 9, 2, 4), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 3, 1, 2, 2, groups=16), nn.ReLU6()]
    program = mobile_program(nn.Sequential(*line, nn.Conv1d(16, 4, 1, groups=2)), (8, 8, 32), {"target": "executorch"})
    sound = torch.randn(32, 8, 32)

    (graph,) = delegated(lowered(program))
    assert [len(nodes(graph, name)) for name in ("aten.convolution", "dequantize_per_channel")] == [3, 3]
    assert torch.equal(run(serialized(program)[:-40], sound), in_xnnpack_arithmetic(program, sound))


def test_xnnpack_is_given_the_whole_graph(manager):
    called = [str(node.target) for node in manager.exported_program().graph.nodes if node.op == "call_function"]

    assert len(delegated(manager)) == 1
    assert all("executorch_call_delegate" in target or "getitem" in target for target in called)


def test_every_convolution_and_linear_layer_runs_in_int8(manager):
    (graph,) = delegated(manager)

    layers = nodes(graph, "aten.convolution") + nodes(graph, "aten.linear")
    assert len(layers) == 7  # the average pool is one of them
    for layer in layers:
        assert all("dequantize" in str(operand.target) for operand in layer.args[:2])
        (reader,) = layer.users
        if "hardtanh" in str(reader.target):  # XNNPACK clamps while it rounds
            (reader,) = reader.users
        assert "quantize_per_tensor" in str(reader.target)


def test_weights_are_stored_as_int8(shared, content):
    weight = shared.get_parameter("fc.weight")

    assert weight.dtype == torch.int8
    assert weight.numpy().tobytes() in content
    assert weight.float().numpy().tobytes() not in content


def test_a_float_program_can_be_written_too(images):
    torch.manual_seed(0)
    program = quaver.capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), (images,)).eval()

    result = run(serialized(program)[:-40], images)

    torch.testing.assert_close(result, program(images).detach())


def test_weights_without_quantized_activations_are_named_and_run(images):
    torch.manual_seed(0)
    program = mobile_program(nn.Conv2d(3, 4, 3), config={"quant_weight_only": True})

    with pytest.warns(QuaverWarning, match=r"1 layers, '.*' first, compute on float activations"):
        content = serialized(program)[:-40]

    torch.testing.assert_close(run(content, images), program(images).detach())


def test_the_origin_travels_with_the_file(images):
    program = quaver.capture(nn.ReLU(), (images,)).eval()

    content = serialized(program, {"quaver": "1.2"})[:-40]

    assert b'"origin": {"quaver": "1.2"}' in content


def test_an_op_that_executorch_has_not_is_an_error_that_names_it(images):
    program = quaver.capture(Angles(), (images,)).eval()

    with pytest.raises(EngineError, match=r"ExecuTorch cannot express the program: .*angle"):
        serialized(program)


class Angles(nn.Module):
    def forward(self, x):
        return torch.angle(x)


def test_a_program_that_is_not_mobile_is_refused(patterns, images):
    prepared = quaver.quant_aware(patterns, example_inputs=(images,))

    with pytest.raises(StageError, match="takes a mobile program, or a float one, and this one is prepared"):
        serialized(prepared)
