"""The graph that XNNPACK gets: other ops, the same numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mobiles import mobile_program, nodes
from quaver.xnnpack.partitioning import float_weights, for_xnnpack, shapes

pytestmark = pytest.mark.slow

ONE = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """A convolution, what stands in ``between``, and another convolution or none."""

    def __init__(self, between, channels=8, last=nn.Conv2d):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between = nn.Conv2d(3, 8, 3, padding=1), between
        self.last = last(channels, 4, 1) if last else nn.Identity()

    def forward(self, x):
        return self.last(self.between(F.relu(self.first(x))))


def rewritten(program):
    """The module for XNNPACK, after checking that it computes literally what it did."""
    before = program.graph_module()(ONE)[0]
    module = program.graph_module()
    for_xnnpack(module, (ONE,))
    # a pool that has become a convolution sums in another order; nothing else differs
    torch.testing.assert_close(module(ONE)[0], before, rtol=0, atol=1e-6)
    return module


def test_a_relu_that_the_grid_does_anyway_is_dropped():
    module = rewritten(mobile_program(Net(lambda x: x)))

    assert not nodes(module.graph, "relu")
    assert not nodes(module.graph, "hardtanh")


def test_a_clamp_within_the_grid_is_done_by_the_convolution():
    module = rewritten(mobile_program(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardtanh(-0.1, 0.1), nn.Conv2d(8, 4, 1))))

    (clamp,) = nodes(module.graph, "hardtanh")
    assert "conv2d" in str(clamp.args[0].target)
    assert clamp.args[1:] == (pytest.approx(-0.1, rel=1e-3), pytest.approx(0.1, rel=1e-3))  # on the grid, next to ±0.1


def test_a_clamp_behind_another_op_works_on_integers():
    module = rewritten(mobile_program(Net(lambda x: F.hardtanh(x + x, 0.1, 0.5))))

    (clamp,) = nodes(module.graph, "hardtanh")
    assert "dequantize" in str(clamp.args[0].target)
    (add,) = nodes(module.graph, "aten.add")
    assert all("quantize" in str(reader.target) for reader in add.users)


def test_a_grid_of_fewer_bits_is_bounded_by_clamps():
    module = rewritten(mobile_program(Net(lambda x: x), config={"activation_bits": 4}))

    assert len(nodes(module.graph, "hardtanh")) == 2  # of the input, and of the first convolution's output


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, (2, 4), divisor_override=5),
        lambda x: F.adaptive_avg_pool2d(x, 4),
    ],
)
def test_an_average_pool_becomes_a_depthwise_convolution(pool):
    module = rewritten(mobile_program(Net(pool)))

    assert not nodes(module.graph, "pool2d")
    assert [node.args[6] for node in nodes(module.graph, "conv2d") if len(node.args) > 6 and node.args[6] > 1] == [8]


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.adaptive_avg_pool2d(x, 3),
    ],
)
def test_a_pool_that_divides_by_different_numbers_stays(pool):
    module = rewritten(mobile_program(Net(pool)))

    assert len(nodes(module.graph, "pool2d")) == 1


def test_padding_with_infinity_becomes_finite():
    module = rewritten(mobile_program(Net(lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=float("-inf")), 3))))

    (padding,) = nodes(module.graph, "pad")
    assert padding.args[1:] == ([1, 1, 1, 1], torch.finfo(torch.float32).min)


def test_a_max_pool_has_its_stride_written_out():
    module = rewritten(mobile_program(Net(lambda x: F.max_pool2d(x, 2))))

    (pool,) = nodes(module.graph, "max_pool2d")
    assert pool.args[1:] == ([2, 2], [2, 2], [0, 0], [1, 1], False)


def test_an_adaptive_max_pool_becomes_a_plain_one():
    module = rewritten(mobile_program(Net(lambda x: F.adaptive_max_pool2d(x, 4))))

    assert [str(node.target) for node in nodes(module.graph, "pool2d")] == ["aten.max_pool2d.default"]


def test_the_parts_of_a_split_become_slices():
    module = rewritten(mobile_program(Net(lambda x: torch.cat(x.split([3, 5], 1)[::-1], 1))))

    assert not nodes(module.graph, "split")
    assert [node.args[1:] for node in nodes(module.graph, "slice")] == [(1, 0, 3), (1, 3, 8)]


def test_a_mean_keeps_its_dimensions_and_is_flattened_behind():
    module = rewritten(mobile_program(Net(lambda x: x.mean((3, 2)), last=lambda a, b, _: nn.Linear(a, b))))

    (mean,) = nodes(module.graph, "mean")
    assert mean.args[1:] == ([2, 3], True)
    (quantize,) = mean.users
    assert "decomposed.quantize" in str(quantize.target)


def test_a_matrix_product_with_a_weight_becomes_a_linear_layer():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)))

        def forward(self, x):
            return x.flatten(2).transpose(1, 2) @ self.weight

    module = rewritten(mobile_program(Net(Product(), last=None)))

    assert not nodes(module.graph, "matmul")
    assert len(nodes(module.graph, "linear")) == 1


def test_tensors_that_are_moved_are_on_the_grid_of_the_result():
    types = ["conv2d"]  # the concatenation is left out, so its inputs have ranges of their own
    module = rewritten(mobile_program(Net(TwoBranches(), channels=16), config={"quantize_op_types": types}))

    (cat,) = nodes(module.graph, "cat")
    (quantize,) = cat.users
    assert {tensor.args[1:3] for tensor in cat.args[0]} == {quantize.args[1:3]}


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return torch.cat([self.left(x), self.right(x)], 1)


def test_every_reader_has_a_dequantize_of_its_own():
    module = rewritten(mobile_program(Net(TwoBranches(), channels=16)))

    assert {len(node.users) for node in nodes(module.graph, "dequantize_per_tensor")} == {1}


@pytest.mark.parametrize("rule", ["abs_max", "channel_wise_abs_max"])
def test_every_weight_has_a_step_and_a_zero_point_per_channel(rule):
    module = rewritten(mobile_program(Net(lambda x: x), config={"weight_quantize_type": rule}))

    weights = [node.args[1] for node in nodes(module.graph, "conv2d")]
    assert ["dequantize_per_channel" in str(weight.target) for weight in weights] == [True, True]
    stored = [[module.get_buffer(argument.target) for argument in weight.args[:3]] for weight in weights]
    assert [(integers.dtype, len(steps), len(zeros)) for integers, steps, zeros in stored] == [
        (torch.int8, 8, 8),
        (torch.int8, 4, 4),
    ]


def test_a_weight_without_quantized_activations_is_stored_as_float():
    program = mobile_program(Net(lambda x: x), config={"quant_weight_only": True})

    module = rewritten(program)

    assert float_weights(program.graph_module().graph) == ["first", "last"]
    assert not nodes(module.graph, "dequantize")


def test_the_program_keeps_its_graph_and_its_tensors():
    program = mobile_program(Net(lambda x: F.avg_pool2d(x, 2)))
    graph, state = str(program.graphs["eval"]), {name: value.clone() for name, value in program.state_dict().items()}

    rewritten(program)

    assert str(program.graphs["eval"]) == graph
    torch.testing.assert_close(program.state_dict(), state, rtol=0, atol=0)


def test_shapes_are_found_without_computing():
    program = mobile_program(Net(lambda x: F.avg_pool2d(x, 2)))

    assert shapes(program.graph_module(), (torch.zeros(5, 3, 16, 16),)) == [(5, 4, 8, 8)]
