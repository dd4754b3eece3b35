"""Activations in OpenVINO's own arithmetic: every bit of what the engine gives, for any float."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from quaver.engines import DEFAULT
from quaver.engines.openvino import activations
from quaver.engines.openvino.activations import KERNELS, activation
from quaver.engines.openvino.runner import OpenVINORunner, ov

ops = ov.opset13
ON_ENGINE = {
    "sigmoid": ops.sigmoid,
    "silu": ops.swish,
    "elu": lambda x: ops.elu(x, 0.7),
}
FURTHER = {"elu": (0.7,)}


def any_floats():
    """Finite float32 of every exponent, and many of those that networks have."""
    spread = np.arange(0, 1 << 32, 40961, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = np.random.default_rng(0).standard_normal(100_000).astype(np.float32) * 3
    edges = np.array([0.0, -0.0, 5.5426, 5.5427, -5.5427, 88.8, -88.8, -87.4, 0.125, 0.15625], np.float32)
    return np.concatenate([spread[np.isfinite(spread)], usual, edges])


@pytest.mark.parametrize("name", KERNELS)
def test_every_bit_is_the_engines(name):
    values, x = any_floats(), ops.parameter([1, -1], np.float32)
    expected = OpenVINORunner(ov.Model([ON_ENGINE[name](x)], [x], name))(values[None])

    computed = activation(name, torch.from_numpy(values), *FURTHER.get(name, ()))

    assert np.array_equal(computed.numpy(), expected[0])


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_torchs_function_within_its_rounding(name):
    x = torch.linspace(-9, 9, 10_001)

    computed = activation(name, x, *FURTHER.get(name, ()))

    assert (computed - KERNELS[name][1](x, *FURTHER.get(name, ()))).abs().max() < 2e-6


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_the_same_in_blocks_and_with_gradients(name, monkeypatch):
    monkeypatch.setattr(activations, "BLOCK", 7)
    x = torch.randn(3, 5, 4, 4).contiguous(memory_format=torch.channels_last)

    whole = activation(name, x.clone().requires_grad_(), *FURTHER.get(name, ()))

    assert torch.equal(activation(name, x, *FURTHER.get(name, ())), whole)
    assert torch.equal(activation(name, x[:, ::2], *FURTHER.get(name, ())), whole[:, ::2])


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_the_functions(name):
    ours, theirs = (torch.linspace(-4, 4, 1001).requires_grad_() for _ in range(2))

    activation(name, ours).sum().backward()
    KERNELS[name][1](theirs).sum().backward()

    assert (ours.grad - theirs.grad).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_a_tensor_keeps_its_dtype(dtype):
    x = torch.linspace(-2, 2, 9).to(dtype)

    assert activation("sigmoid", x).dtype == dtype
    assert dtype == torch.bfloat16 or torch.equal(activation("sigmoid", x), torch.sigmoid(x))


def test_a_quantized_graph_has_them_and_a_float_one_has_torchs():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SiLU(), nn.Conv2d(4, 4, 1), nn.GELU(), nn.Conv2d(4, 4, 1))
    program = quaver.capture(net, (torch.zeros(1, 3, 4, 4),))

    calls = [
        [node.target for node in DEFAULT.lowering().run(one.graphs["eval"]).nodes if node.op == "call_function"]
        for one in (program, quaver.quant_aware(program))
    ]

    assert [targets.count(activation) for targets in calls] == [0, 1]
    assert [targets.count(torch.ops.aten.gelu.default) for targets in calls] == [1, 1]
