import pytest
import torch
from torch import nn

import quaver
from quaver.engines import DEFAULT
from quaver.int8 import kernels


def functions(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_quantized_ops_become_integer_kernels(trained):
    lowered = DEFAULT.lowering().run(trained.graphs["eval"])

    assert functions(lowered).count(kernels.rescaled) == 6
    assert functions(lowered).count(kernels.average) == 2
    assert functions(lowered).count(kernels.fold_batch_norm) == 3
    assert torch.ops.aten.conv2d.default not in functions(lowered)


def test_prepared_and_frozen_graphs_lower_to_the_same_kernels(trained):
    prepared = functions(DEFAULT.lowering().run(trained.graphs["eval"]))

    frozen = functions(DEFAULT.lowering().run(quaver.convert(trained).graphs["eval"]))

    for kernel in (kernels.rescaled, kernels.average):
        assert frozen.count(kernel) == prepared.count(kernel)


def test_a_convolution_that_is_not_quantized_keeps_its_op(patterns, images):
    qat = quaver.quant_aware(patterns, {"not_quant_pattern": "body"}, example_inputs=(images,))

    lowered = DEFAULT.lowering().run(qat.graphs["eval"])

    assert functions(lowered).count(torch.ops.aten.conv2d.default) == 1
    assert functions(lowered).count(torch.ops.aten.batch_norm.default) == 1


def test_a_float_graph_lowers_to_itself():
    program = quaver.capture(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), (torch.zeros(1, 3, 4, 4),))

    lowered = DEFAULT.lowering().run(program.graphs["eval"])

    assert functions(lowered) == functions(program.graphs["eval"])


def test_a_batch_norm_that_others_read_around_is_not_folded(images):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.bn = nn.BatchNorm2d(4)

        def forward(self, x):
            x = self.conv(x)
            return self.bn(x) + x

    qat = quaver.quant_aware(Net(), {"quantize_op_types": ["conv2d"]}, example_inputs=(images,))
    qat.train()(images)

    frozen = quaver.convert(qat)

    assert torch.ops.aten.batch_norm.default in functions(frozen.graphs["eval"])
    assert torch.equal(frozen(images), qat.eval()(images))


@pytest.mark.parametrize("join", [torch.concat, torch.concatenate])
def test_a_concatenation_by_another_name_is_stored_as_any_other(join):
    class Joined(nn.Module):
        """A signed concatenation in front of a transposed convolution, which takes signed integers as they are."""

        def __init__(self, join):
            super().__init__()
            self.left, self.right, self.up = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(8, 4, 2)
            self.join = join

        def forward(self, x):
            return self.up(self.join([self.left(x), self.right(x)], 1))

    def shifts(join):
        program = quaver.quant_aware(Joined(join), example_inputs=(torch.zeros(2, 3, 4, 4),))
        graph = DEFAULT.lowering().run(program.graphs["eval"])
        return [node.args[2] for node in graph.nodes if node.target is kernels.quantizer_integers]

    assert shifts(join) == shifts(torch.cat)
    assert set(shifts(torch.cat)) == {False, True}
