"""Layer norms and attention in OpenVINO's own order of summing: every bit of what the engine gives with AVX-512."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.engines import DEFAULT
from quaver.engines.openvino import attention, lanes
from quaver.engines.openvino.attention import einsum, matrix_product, scaled_dot_product_attention, softmax
from quaver.engines.openvino.layer_norms import group_norm, layer_norm
from quaver.engines.openvino.runner import OpenVINORunner, ov
from quaver.machine.cpu import cpu

ops = ov.opset13

on_avx512 = pytest.mark.skipif(
    "AVX512" not in cpu().abilities or bool(cpu().onednn_limit), reason="the engine adds up in registers of another size"
)


def on_engine(network, *tensors):
    """What the engine makes of tensors."""
    inputs = [ops.parameter(tensor.shape, np.float32) for tensor in tensors]
    return OpenVINORunner(ov.Model([network(*inputs)], inputs, "net"))(*[tensor.numpy() for tensor in tensors])


def rows(*sizes):
    """Rows of different means and deviations."""
    generator = torch.Generator().manual_seed(0)
    spread, mean = (torch.randn(*sizes[:-1], 1, generator=generator) for _ in range(2))
    return torch.randn(*sizes, generator=generator) * spread + mean


@on_avx512
@pytest.mark.parametrize("channels", [1, 2, 7, 15, 16, 23, 33, 64, 96, 100, 192, 255, 384, 1024])
def test_every_bit_of_a_layer_norm_is_the_engines(channels):
    x, weight, bias = rows(1, 300_000 // channels + 1, channels), torch.randn(channels), torch.randn(channels)
    wide = [tensor.numpy().reshape(1, 1, -1) for tensor in (weight, bias)]
    bare = on_engine(lambda x: ops.mvn(x, np.array([-1]), True, 1e-6, "INSIDE_SQRT"), x)
    whole = on_engine(
        lambda x: ops.add(ops.multiply(ops.mvn(x, np.array([-1]), True, 1e-6, "INSIDE_SQRT"), wide[0]), wide[1]), x
    )

    computed = layer_norm(x, [channels], weight, bias, 1e-6), layer_norm(x, [channels], None, None, 1e-6)

    assert np.array_equal(computed[0].numpy(), whole)
    assert np.array_equal(computed[1].numpy(), bare)


@on_avx512
@pytest.mark.parametrize("size", [3, 16, 31, 49, 64, 65, 80, 100, 197, 255, 785, 1024])
def test_every_bit_of_a_softmax_is_the_engines(size):
    x = rows(2, 3, 100, size) * 4

    assert np.array_equal(softmax(x, -1).numpy(), on_engine(lambda x: ops.softmax(x, 3), x))


@on_avx512
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "sizes", [(197, 64, 197), (50, 197, 64), (7, 17, 33), (49, 49, 2), (16, 513, 32), (16, 1024, 8), (8, 2500, 8)]
)
def test_every_bit_of_a_product_is_the_engines(sizes, turned):
    many, shared, columns = sizes
    x, y = rows(2, 3, many, shared), rows(2, 3, shared, columns)
    given = y.transpose(2, 3).contiguous() if turned else y

    assert np.array_equal(matrix_product(x, y).numpy(), on_engine(lambda x, y: ops.matmul(x, y, False, turned), x, given))


@on_avx512
@pytest.mark.parametrize(
    ("equation", "sizes", "others"),
    [
        ("byhwc,hkc->byhwk", (2, 1, 14, 14, 96), (14, 7, 96)),
        ("byhwc,wkc->byhwk", (2, 1, 14, 14, 96), (14, 7, 96)),
        ("bhid,bhjd->bhij", (2, 3, 50, 33), (2, 3, 40, 33)),
        ("bij,bjd->bdi", (2, 50, 60), (2, 60, 17)),
    ],
)
def test_every_bit_of_an_einsum_is_the_engines(equation, sizes, others):
    x, y = rows(*sizes), rows(*others)

    computed = einsum(equation, [x, y])

    assert np.array_equal(computed.numpy(), on_engine(lambda x, y: ops.einsum([x, y], equation), x, y))
    assert torch.allclose(computed, torch.einsum(equation, x, y), atol=1e-3)


@pytest.mark.parametrize("equation", ["ij,jk", "ii,ij->j", "ij,ij->", "...ij,...jk->...ik", "ij,kl->ik", "bic,bjcd->bij"])
def test_an_einsum_that_is_no_product_of_matrices_is_torchs(equation):
    sizes = {"ij": (3, 3), "ii": (3, 3), "jk": (3, 4), "kl": (4, 5), "bic": (2, 3, 4), "bjcd": (2, 5, 4, 6)}
    tensors = [rows(*sizes[one.replace(".", "")]) for one in equation.split("->")[0].split(",")]

    assert torch.equal(einsum(equation, tensors), torch.einsum(equation, tensors))


@on_avx512
@pytest.mark.parametrize(("channels", "groups", "size"), [(64, 1, 28), (64, 8, 14), (32, 32, 7), (48, 3, 9)])
def test_every_bit_of_a_norm_of_groups_is_the_engines(channels, groups, size):
    x, weight, bias = rows(2, channels, size, size), torch.randn(channels), torch.randn(channels)

    def network(x):
        normalized = ops.mvn(ops.reshape(x, np.array([2, groups, -1]), False), np.array([2]), True, 1e-6, "INSIDE_SQRT")
        back = ops.reshape(normalized, np.array([2, channels, size, size]), False)
        return ops.add(ops.multiply(back, weight.view(1, -1, 1, 1).numpy()), bias.view(1, -1, 1, 1).numpy())

    assert np.array_equal(group_norm(x, groups, weight, bias, 1e-6).numpy(), on_engine(network, x))


class Attention(nn.Module):
    """Two heads, of a size whose root is no power of 2."""

    def __init__(self, masked):
        super().__init__()
        self.given, self.norm, self.taken = nn.Linear(96, 288), nn.LayerNorm(96), nn.Linear(96, 96)
        self.mask = nn.Parameter(torch.randn(1, 1, 37, 37)) if masked else None

    def forward(self, x):
        q, k, v = self.given(self.norm(x)).unflatten(2, (3, 2, 48)).permute(2, 0, 3, 1, 4)
        return self.taken(F.scaled_dot_product_attention(q, k, v, self.mask).transpose(1, 2).flatten(2))


@on_avx512
@pytest.mark.parametrize("masked", [False, True])
def test_a_file_with_attention_has_every_integer_of_the_simulation(tmp_path, masked):
    torch.manual_seed(0)
    x = torch.randn(64, 37, 96)
    qat = quaver.quant_aware(Attention(masked), example_inputs=(x[:2],)).train()
    qat(x)

    frozen = quaver.convert(qat)
    result = quaver.verify(frozen, quaver.export(frozen, tmp_path), [x])

    assert result.integers_equal == 1
    assert all(layer.differ == 0 for layer in result.layers)


class OnTokens(nn.Module):
    """A linear layer, what is asked for, and a linear layer."""

    def __init__(self, forward):
        super().__init__()
        self.first, self.norm, self.last, self.between = nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64), forward
        self.patches = nn.Conv2d(64, 64, 1)

    def forward(self, x):
        return self.last(self.between(self, x))


def squares(tokens):
    return tokens.unflatten(1, (8, 8))


def with_a_sum_for_a_convolution(net, x):
    tokens = net.first(x)
    planes = (tokens + net.last(net.norm(tokens))).reshape(-1, 64, 64).transpose(1, 2).unflatten(2, (8, 8))
    return net.patches(planes).flatten(2).transpose(1, 2)


def with_scaled_products(net, x):
    q = net.first(x).unflatten(2, (2, 32)).transpose(1, 2)
    return (q @ q.transpose(2, 3) * 32**-0.5).softmax(3).matmul(q).transpose(1, 2).flatten(2)


ROUNDED = {
    "a norm that is added": lambda net, x: net.norm(net.first(x)) + x,
    "a norm that is multiplied": lambda net, x: net.norm(net.first(x)) * x,
    "a linear layer that is reshaped and added": lambda net, x: squares(net.first(x)).flatten(1, 2) + x,
    "a sum that is moved to a convolution": with_a_sum_for_a_convolution,
    "products that are scaled": with_scaled_products,
}


@on_avx512
@pytest.mark.parametrize("name", ROUNDED)
def test_a_file_rounds_as_the_simulation_what_is(tmp_path, name):
    torch.manual_seed(0)
    x = torch.randn(512, 64, 64)
    qat = quaver.quant_aware(OnTokens(ROUNDED[name]), example_inputs=(x[:2],)).train()
    qat(x[:8])

    frozen = quaver.convert(qat)
    result = quaver.verify(frozen, quaver.export(frozen, tmp_path), [x])

    assert {layer.name: layer.differ for layer in result.layers if layer.differ} == {}


SAME = {
    "layer norm": (lambda x: layer_norm(x, [24], torch.ones(24), None), lambda x: F.layer_norm(x, [24], torch.ones(24))),
    "softmax": (lambda x: softmax(x, 2), lambda x: torch.softmax(x, 2)),
    "product": (lambda x: matrix_product(x, x.mT), lambda x: x @ x.mT),
    "attention": (lambda x: scaled_dot_product_attention(x, x, x), lambda x: F.scaled_dot_product_attention(x, x, x)),
    "attention with a mask": (
        lambda x: scaled_dot_product_attention(x, x, x, torch.eye(5) > 0, scale=0.3),
        lambda x: F.scaled_dot_product_attention(x, x, x, torch.eye(5) > 0, scale=0.3),
    ),
    "causal attention": (
        lambda x: scaled_dot_product_attention(x, x, x, is_causal=True),
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_it_is_torchs_function_and_gradient_within_its_rounding(name):
    ours, theirs = ((torch.linspace(-1, 1, 360) * 99).cos().view(3, 5, 24).requires_grad_() for _ in range(2))

    computed, expected = SAME[name][0](ours), SAME[name][1](theirs)
    computed.cos().sum().backward()
    expected.cos().sum().backward()

    assert torch.allclose(computed, expected, atol=1e-5)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
    with torch.no_grad():
        assert torch.equal(SAME[name][0](ours), computed)


@pytest.mark.parametrize("name", SAME)
def test_values_are_the_same_in_blocks(name, monkeypatch):
    x = torch.randn(3, 5, 24)
    whole = SAME[name][0](x)

    monkeypatch.setattr(lanes, "BLOCK", 30)
    monkeypatch.setattr(attention, "BLOCK", 30)

    assert torch.equal(SAME[name][0](x), whole)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["layer norm without weights", "softmax", "product"])
def test_a_tensor_keeps_its_dtype(name, dtype):
    kernel = {"layer norm without weights": lambda x: layer_norm(x, [24])}.get(name) or SAME[name][0]

    assert kernel(torch.randn(2, 5, 24).to(dtype)).dtype == dtype


def test_second_derivatives_are_there():
    x = torch.randn(2, 5, 24, requires_grad=True)

    (slope,) = torch.autograd.grad(layer_norm(x, [24]).square().sum(), x, create_graph=True)
    slope.square().sum().backward()

    assert x.grad is not None


def test_a_quantized_graph_has_them_and_a_float_one_has_torchs():
    program = quaver.capture(Attention(False), (torch.zeros(2, 37, 96),))

    calls = [
        {node.target for node in DEFAULT.lowering().run(one.graphs["eval"]).nodes if node.op == "call_function"}
        for one in (program, quaver.quant_aware(program))
    ]

    assert [{layer_norm, scaled_dot_product_attention} & targets for targets in calls] == [
        set(),
        {layer_norm, scaled_dot_product_attention},
    ]
