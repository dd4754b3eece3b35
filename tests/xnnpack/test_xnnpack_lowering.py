import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from mobiles import Doubled, in_xnnpack_arithmetic, mobile_program, nodes
from quaver.graph.nodes import is_quantize
from quaver.xnnpack.lowering import XNNPACKLowering


@pytest.fixture(scope="module")
def noise():
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Squeezed(nn.Module):
    """A gate per channel: a mean, two convolutions, a sigmoid, a product."""

    def __init__(self):
        super().__init__()
        self.stem, self.down, self.up = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


def test_integers_go_from_op_to_op(patterns):
    graph = XNNPACKLowering().run(mobile_program(patterns).graphs["eval"])

    called = {node.target.__name__ for node in graph.nodes if node.op == "call_function"}
    assert {"biased", "added", "average", "adaptive_average"} <= called
    assert not called & {"conv2d.default", "linear.default", "add.Tensor", "relu.default", "relu6.default"}
    assert "hardswish.default" in called  # XNNPACK's is a float one


def test_what_is_computed_lies_within_steps_of_the_graph_as_written(patterns, noise):
    program = mobile_program(patterns)

    result = in_xnnpack_arithmetic(program, noise)

    literal = program.graph_module()(noise)[0]
    (step,) = [node.args[0][0].args[1] for node in program.graphs["eval"].nodes if node.op == "output"]
    # biases and sums are rounded otherwise; each moves a logit by a step or two
    assert (result - literal).abs().max() <= 4 * step
    assert result.std() > 0


def test_a_gate_is_multiplied_in_integers(noise):
    torch.manual_seed(0)
    program = mobile_program(Squeezed())

    called = {
        node.target.__name__ for node in XNNPACKLowering().run(program.graphs["eval"]).nodes if node.op == "call_function"
    }

    assert {"multiplied", "mean"} <= called
    assert torch.allclose(in_xnnpack_arithmetic(program, noise), program.graph_module()(noise)[0], atol=0.05)


def test_every_quantize_node_says_which_one_it_is(patterns):
    graph = mobile_program(patterns).graphs["eval"]

    lowering = XNNPACKLowering()
    lowered = lowering.run(graph)

    rounded = {node.args[0]: integers for node, (integers, _) in lowering.integers.items() if is_quantize(node.args[0])}
    assert list(rounded) == nodes(graph, "decomposed.quantize")
    assert set(rounded.values()) <= set(lowered.nodes)


def test_what_is_written_into_a_tensor_is_written(noise):
    program = mobile_program(Doubled())

    result, literal = in_xnnpack_arithmetic(program, noise), program.graph_module()(noise)[0]

    assert (result - literal).abs().max() < 0.05 * literal.abs().max()  # a step is a 127th


def test_a_program_without_quantized_ops_is_computed_as_written(noise):
    program = mobile_program(nn.Conv2d(3, 4, 3), config={"quant_weight_only": True})

    assert torch.equal(in_xnnpack_arithmetic(program, noise), program.graph_module()(noise)[0])


def test_a_program_for_executorch_computes_as_it_does_once_frozen():
    qat = quaver.quant_aware(nn.Conv2d(3, 4, 3), {"target": "executorch"}, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
    qat(torch.randn(4, 3, 8, 8))

    frozen, int8 = quaver.convert(qat, save_int8=True)

    assert [type(program.engine.lowering()) for program in (frozen, int8)] == [XNNPACKLowering] * 2
    assert frozen.engine.name == quaver.passes.TransformForMobilePass().apply(frozen).engine.name == "executorch"
