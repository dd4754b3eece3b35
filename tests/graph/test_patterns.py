"""What is asked of several nodes together, of tiny graphs made by hand."""

import operator

import pytest
import torch

from graphs import stored
from quaver.graph.patterns import ends_layer, never_negative

aten = torch.ops.aten

SIGNS = {
    "relu": (lambda g, x: g(aten.relu.default, x), True),
    "sigmoid": (lambda g, x: g(aten.sigmoid.default, x), True),
    "clamp from 1": (lambda g, x: g(aten.clamp.default, x, 1), True),
    "clamp to 1": (lambda g, x: g(aten.clamp.default, x, None, 1), False),
    "tanh": (lambda g, x: g(aten.tanh.default, x), False),
    "pool of a relu": (lambda g, x: g(aten.avg_pool2d.default, g(aten.relu.default, x), 2), True),
    "pool of anything": (lambda g, x: g(aten.avg_pool2d.default, x, 2), False),
    "part of a relu": (lambda g, x: g(operator.getitem, g(aten.split.Tensor, g(aten.relu.default, x), 2), 0), True),
    "sum of a relu and itself": (lambda g, x: g(aten.add.Tensor, *[g(aten.relu.default, x)] * 2), True),
    "sum of a relu and a number": (lambda g, x: g(aten.add.Tensor, g(aten.relu.default, x), -1), False),
    "difference of relus": (lambda g, x: g(aten.sub.Tensor, *[g(aten.relu.default, x)] * 2), False),
    "bicubic relu": (lambda g, x: g(aten.upsample_bicubic2d.vec, g(aten.relu.default, x), None, False, [2.0, 2.0]), False),
    "half a concatenation": (lambda g, x: g(aten.cat.default, [g(aten.relu.default, x), x], 1), False),
    "input": (lambda g, x: x, False),
}


@pytest.mark.parametrize("case", SIGNS)
def test_what_cannot_be_negative(graph, x, case):
    build, expected = SIGNS[case]

    assert bool(never_negative([build(lambda target, *args: graph.call_function(target, args), x)])) is expected


def test_a_parameter_or_alpha_may_make_a_sum_negative(graph, x):
    positive = graph.call_function(aten.relu.default, (x,))

    assert not never_negative([graph.call_function(aten.add.Tensor, (positive, stored(graph)))])
    assert not never_negative([graph.call_function(aten.add.Tensor, (positive, positive), {"alpha": -1})])


def test_a_long_way_back_is_no_recursion(graph, x):
    node = graph.call_function(aten.relu.default, (x,))
    for _ in range(5000):
        node = graph.call_function(aten.add.Tensor, (node, node))

    assert never_negative([node])


def test_a_layer_ends_behind_its_batch_norm_and_activation(graph, x):
    convolution = graph.call_function(aten.conv2d.default, (x, stored(graph)))
    norm = graph.call_function(aten.batch_norm.default, (convolution,))
    activation = graph.call_function(aten.tanh.default, (norm,))
    assert not ends_layer(activation)  # nobody reads it

    graph.call_function(aten.add.Tensor, (activation, x))
    assert ends_layer(activation)

    graph.call_function(aten.add.Tensor, (norm, x))
    assert not ends_layer(activation)
