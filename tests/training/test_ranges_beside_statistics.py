"""The compiler's pass: the same range, bit for bit, from the ends of each channel alone."""

import pytest
import torch
import torch.nn.functional as F
from torch._decomp import core_aten_decompositions
from torch._inductor.decomposition import decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from quaver.training.ranges_beside_statistics import EXTREMES, RangesBesideStatistics

AFTER = {
    "nothing": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "half": lambda x: F.relu(x.bfloat16()),
    "upside down": lambda x: 1 - 2 * x,
}


def ranges(x, weight, bias, after):
    """What a quantizer asks of a tensor behind a batch norm in training."""
    y = after(F.batch_norm(x, None, None, weight, bias, training=True))
    return y, y.amin(), y.amax()


def traced(function, *values):
    return make_fx(function, decomposition_table=core_aten_decompositions() | decompositions, tracing_mode="fake")(*values)


def whole_tensors(graph, size):
    """The tensors of ``size`` values that a range is taken of in one piece."""
    looked = [node.args[0] for node in graph.nodes if node.target in EXTREMES and len(node.args) == 1]
    return [value for value in looked if "val" in value.meta and value.meta["val"].numel() == size]


def example(shape, dtype=torch.float32):
    torch.manual_seed(0)
    # weights of both signs: a negative one turns a channel's order around
    return torch.randn(shape).to(dtype), torch.tensor([1.5, -0.7, 0.0]), torch.tensor([0.3, -2.0, -1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (8, 3, 7), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("name", AFTER)
def test_ends_of_channels_give_the_range_of_the_tensor(name, shape, dtype):
    values = example(shape, dtype)
    program = traced(lambda *v: ranges(*v, AFTER[name]), *values)
    before = program(*values)
    assert len(whole_tensors(program.graph, values[0].numel())) == 2

    RangesBesideStatistics()(program.graph)
    program.recompile()

    assert not whole_tensors(program.graph, values[0].numel())
    for one, other in zip(before, program(*values), strict=True):
        assert torch.equal(one, other)


def test_not_a_number_stays_one():
    values = example((4, 3, 5, 6))
    program = traced(lambda *v: ranges(*v, F.relu), *values)
    RangesBesideStatistics()(program.graph)
    program.recompile()
    values[0][0, 1, 2, 3] = float("nan")

    assert program(*values)[2].isnan()


@pytest.mark.parametrize(
    "after",
    [F.hardswish, lambda y: y * y, lambda y: F.relu(y) * torch.arange(6.0), lambda y: F.avg_pool2d(y, 2)],
    ids=["not monotone", "two readers", "another axis", "a pool"],
)
def test_other_tensors_are_looked_at_whole(after):
    values = example((4, 3, 5, 6))
    program = traced(lambda *v: ranges(*v, after), *values)
    before = str(program.graph)

    RangesBesideStatistics()(program.graph)

    assert str(program.graph) == before
