"""Small mobile programs, and what XNNPACK's arithmetic says that they compute."""

import torch
from torch import nn

import quaver
from quaver.graph.copying import copy_graph
from quaver.passes import TransformForMobilePass
from quaver.program.views import Executable
from quaver.xnnpack.lowering import XNNPACKLowering


class Doubled(nn.Module):
    """A tensor that XNNPACK gives back, for it is written into, and that it reads on."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        x = self.first(x).clone()
        x[:, :2] = x[:, :2] * 2
        return self.last(x)


def mobile_program(model, shape=(8, 3, 16, 16), config=None, steps=3):
    """A model trained a little on noise, all the way to the mobile form."""
    generator = torch.Generator().manual_seed(2)
    qat = quaver.quant_aware(model, config, example_inputs=(torch.zeros(shape),))
    optimizer = torch.optim.SGD(qat.parameters(), lr=0.01)
    for _ in range(steps):
        loss = (qat(torch.randn(shape, generator=generator)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return TransformForMobilePass().apply(quaver.convert(qat.eval()))


def in_xnnpack_arithmetic(program, images):
    (output,) = all_in_xnnpack_arithmetic(program, images)
    return output


def all_in_xnnpack_arithmetic(program, images):
    with torch.no_grad():
        return Executable(program, XNNPACKLowering().run(program.graphs["eval"]))(images)


def turned_inside_out(program):
    """The program with all its quantized tensors as outputs."""
    graph = copy_graph(program.graphs["eval"])
    tensors = [node for node in nodes(graph, "dequantize_per_tensor") if node.args[0].op == "call_function"]
    next(node for node in graph.nodes if node.op == "output").args = (tuple(tensors),)
    return program.copy(graphs={"eval": graph})


def nodes(graph, word):
    return [node for node in graph.nodes if node.op == "call_function" and word in str(node.target)]
