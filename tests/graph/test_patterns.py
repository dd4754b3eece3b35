"""What is asked of several nodes together, of tiny graphs made by hand."""

import operator

import pytest
import torch

from graphs import stored
from quaver.graph.patterns import ends_layer, folded_behind, never_negative

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


def layer(graph, x, target=aten.conv2d.default, rank=4):
    node = graph.call_function(target, (x, stored(graph)))
    node.meta["rank"] = rank
    return node


def constant(graph, axis, rank):
    node = stored(graph)
    node.meta |= {"rank": rank, "axis": axis}
    return node


def test_a_layer_does_products_and_sums_with_a_constant_per_channel_by_itself(graph, x):
    convolution = layer(graph, x)
    norm = graph.call_function(aten.batch_norm.default, (convolution, None, None, stored(graph), stored(graph), False))
    product = graph.call_function(aten.mul.Tensor, (constant(graph, -3, 3), norm))
    total = graph.call_function(aten.add.Tensor, (product, constant(graph, 0, 1)))
    tenth = graph.call_function(aten.mul.Tensor, (total, 0.1))
    graph.call_function(aten.add.Tensor, (tenth, x))

    assert folded_behind(convolution) == [norm, product, total, tenth]
    assert ends_layer(tenth)


KEPT = {
    "another axis": lambda graph, x, conv: graph.call_function(aten.mul.Tensor, (conv, constant(graph, -1, 4))),
    "a rank more": lambda graph, x, conv: graph.call_function(aten.mul.Tensor, (conv, constant(graph, -3, 5))),
    "several axes": lambda graph, x, conv: graph.call_function(aten.mul.Tensor, (conv, stored(graph))),
    "no constant": lambda graph, x, conv: graph.call_function(aten.mul.Tensor, (conv, x)),
    "times alpha": lambda graph, x, conv: graph.call_function(aten.add.Tensor, (conv, 1.0), {"alpha": 2}),
    "an activation": lambda graph, x, conv: graph.call_function(
        aten.mul.Tensor, (graph.call_function(aten.relu.default, (conv,)), 0.1)
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_not_the_layers_own_stays_behind_it(graph, x, case):
    convolution = layer(graph, x)
    node = KEPT[case](graph, x, convolution)
    graph.call_function(aten.add.Tensor, (node, x))

    assert folded_behind(convolution) == []
    assert not ends_layer(node)


def test_channels_of_a_linear_layer_are_its_last_axis(graph, x):
    first, second = (layer(graph, x, aten.linear.default, 3) for _ in range(2))
    own, other = (
        graph.call_function(aten.mul.Tensor, (node, constant(graph, axis, 3))) for node, axis in ((first, -1), (second, -2))
    )

    assert folded_behind(first) == [own]
    assert folded_behind(second) == []
    assert other.users == {}


def test_what_somebody_else_reads_too_is_not_folded(graph, x):
    convolution = layer(graph, x)
    graph.call_function(aten.mul.Tensor, (convolution, 0.1))
    graph.call_function(aten.add.Tensor, (convolution, x))

    assert folded_behind(convolution) == []
