"""Which ops a file may call does not hang on what a version of torch calls pointwise."""

import pytest
import torch

from quaver.program import allowed_ops

POINTWISE = """
    relu relu6 leaky_relu elu celu selu gelu silu mish hardswish hardsigmoid hardtanh hardshrink softshrink softplus prelu
    sigmoid tanh log_sigmoid threshold clamp clamp_min clamp_max add sub mul div pow neg abs exp log sqrt rsqrt reciprocal
    rrelu maximum minimum round floor ceil where eq ne lt gt erf sin cos
"""


@pytest.mark.parametrize("name", POINTWISE.split())
def test_activations_and_elementwise_ops_are_allowed_whatever_torch_calls_them(name, monkeypatch):
    monkeypatch.setattr(allowed_ops, "_is_pointwise", lambda _: False)
    packet = getattr(torch.ops.aten, name)

    assert all(allowed_ops.is_allowed(getattr(packet, overload)) for overload in packet.overloads())


def test_their_gradients_are_not():
    assert not allowed_ops.is_allowed(torch.ops.aten.leaky_relu_backward.default)
