"""Placement on graphs made by hand: which tensors share a quantizer, and for which engine."""

import pytest
import torch
from torch import fx, nn

import quaver
import quaver.nn as qnn
from quaver.errors import ConfigError
from quaver.graph.nodes import Op, ops_in
from quaver.passes import AddQuantDequantPass, QuantizationTransformPass
from quaver.passes.quantizer_groups import QuantizerSource
from quaver.program import OpPlan

aten = torch.ops.aten


def graph_of(*calls):
    """A graph with the input ``x`` and these ops: a name, its type, a function, and the names of what it reads."""
    graph = fx.Graph()
    nodes = {"x": graph.placeholder("x")}
    for name, op_type, function, *inputs in calls:
        args = [
            [nodes.get(one, one) for one in given] if isinstance(given, list) else nodes.get(given, given)
            for given in inputs
        ]
        nodes[name] = graph.call_function(function, tuple(args))
        nodes[name].meta["op"] = Op(name, op_type, name, "")
    graph.output(nodes[name])
    return graph, nodes


def test_what_a_concatenation_reads_and_gives_is_one_group_and_what_computes_begins_another():
    graph, nodes = graph_of(
        ("one", "relu", aten.relu.default, "x"),
        ("two", "sigmoid", aten.sigmoid.default, "x"),
        ("both", "concat", aten.cat.default, ["one", "two"]),
        ("mean", "pool2d", aten.adaptive_avg_pool2d.default, "both", [1, 1]),
        ("flat", "flatten", aten.flatten.using_ints, "mean"),
    )
    plan = {"both": OpPlan(None, {0: {}, 1: {}}), "mean": OpPlan(None, {0: {}}), "flat": OpPlan(None, {0: {}})}

    joined, pooled = QuantizerSource(None).groups(ops_in(graph), plan)

    assert joined.sources == [nodes["one"], nodes["two"]]
    assert joined.moved == {nodes["both"]: "both"}
    assert [(op.node.name, position) for op, position, _ in joined.reads] == [
        (nodes["both"].name, 0),
        (nodes["both"].name, 1),
        (nodes["mean"].name, 0),
    ]
    assert pooled.sources == [nodes["mean"]]
    assert pooled.moved == {nodes["flat"]: "flat"}


def test_a_tensor_that_nobody_wants_rounded_is_in_no_group():
    graph, nodes = graph_of(("one", "relu", aten.relu.default, "x"), ("two", "relu", aten.relu.default, "one"))

    (group,) = QuantizerSource(None).groups(ops_in(graph), {"two": OpPlan(None, {0: {}})})

    assert group.sources == [nodes["one"]]


def test_quantizers_for_two_engines_in_one_program_are_refused():
    program = quaver.capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), (torch.zeros(1, 3, 8, 8),))
    prepared = QuantizationTransformPass().apply(program)

    with pytest.raises(ConfigError, match="an earlier pass placed quantizers for 'openvino'"):
        AddQuantDequantPass(target="onnx").apply(prepared)


def test_each_operand_of_a_live_sum_of_a_tensor_with_itself_keeps_its_own_quantizer():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.add = qnn.Add()

        def forward(self, x):
            return self.add(x, x)

    quanter, x = quaver.QAT(), torch.linspace(-1, 1, 24).view(2, 3, 2, 2)
    net = quanter.quantize(Twice()).train()
    net(x)
    net.eval().add.input_quantizers[1].accum.mul_(0.5)

    frozen = quanter.convert(net, quaver.InputSpec([None, 3, 2, 2], "float32"))

    assert torch.equal(frozen(x), net(x))
