import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mobiles import mobile_program, nodes
from quaver.xnnpack.step_limits import fit_steps


class Dead(nn.Module):
    """Everything behind the first ReLU is zero, whatever comes in."""

    def __init__(self, behind):
        super().__init__()
        self.first, self.last, self.behind = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1), behind
        nn.init.constant_(self.first.bias, -1e4)

    def forward(self, x):
        return self.last(self.behind(F.relu(self.first(x))))


def steps(graph):
    return [node.args[1] for node in nodes(graph, "decomposed.quantize")]


def fitted(program):
    graph = program.graph_module().graph
    fit_steps(program, graph)
    return graph


@pytest.mark.parametrize("behind", [lambda x: x, lambda x: x + x, lambda x: x * x, lambda x: F.avg_pool2d(x, 2)])
def test_no_tensor_is_more_than_128_times_finer_than_what_is_rounded_to_it(behind):
    program = mobile_program(Dead(behind))  # the pass fits them

    graph = program.graph_module().graph

    # the input's step, times the weight's, over 128
    (first,) = [node for node in nodes(graph, "conv2d") if "tensors" in str(node.args[0].args[0].args[0])]
    weight_scale = program.get_parameter(first.args[1].args[1].target).max()
    assert steps(graph)[1] == pytest.approx(first.args[0].args[1] * weight_scale / 128)
    assert min(steps(graph)) > 1e-12


def test_tensors_on_one_grid_stay_on_it():
    program = mobile_program(Dead(lambda x: F.max_pool2d(x, 2)))

    graph = fitted(program)

    (pool,) = nodes(graph, "max_pool2d")
    (quantize,) = pool.users
    assert pool.args[0].args[1:] == quantize.args[1:]
    assert next(iter(quantize.users)).args[1:] == quantize.args[1:]


def test_steps_that_are_coarse_enough_stay():
    program = mobile_program(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1)))

    graph = fitted(program)

    assert steps(graph) == steps(program.graphs["eval"])


def test_what_is_computed_in_float_may_be_as_fine_as_it_likes():
    torch.manual_seed(0)
    program = mobile_program(nn.Sequential(nn.Conv2d(3, 4, 1), Shrink(), nn.Conv2d(4, 2, 1)))

    graph = fitted(program)

    assert steps(graph) == steps(program.graphs["eval"])


class Shrink(nn.Module):
    def forward(self, x):
        return torch.sin(x) * 1e-9
