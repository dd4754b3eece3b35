"""Small networks, one for each pattern that the passes can produce."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHAPE = (16, 16, 16)


class Net(nn.Module):
    """Layers by name, and a forward given as a function of the net and the input."""

    def __init__(self, forward: Callable[["Net", Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.steps = forward

    def forward(self, x: Tensor) -> Tensor:
        """Whatever the function says."""
        return self.steps(self, x)


class Constants(nn.Module):
    """A product and a sum with constants of these shapes: a frozen batch norm, or a layer scale."""

    def __init__(self, factor: tuple[int, ...], shift: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.register_buffer("factor", torch.rand(factor) - 0.2)
        self.register_buffer("shift", None if shift is None else torch.randn(shift))

    def forward(self, x: Tensor) -> Tensor:
        """``x · factor + shift``."""
        x = x * self.factor
        return x if self.shift is None else x + self.shift


def conv(
    inputs: int = 16, outputs: int = 16, size: int = 3, *, act: type[nn.Module] | None = nn.ReLU, **options: int
) -> nn.Module:
    layers = [nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


def conv1d(*, act: type[nn.Module] | None = nn.ReLU, **options: int) -> nn.Module:
    layers = [nn.Conv1d(16, 16, 3, padding=1, bias=False, **options), nn.BatchNorm1d(16)]
    return nn.Sequential(*layers, *([act()] if act else []))


def bare(inputs: int = 16, outputs: int = 16, size: int = 3, **options: int) -> nn.Module:
    """A convolution without bias and batch norm."""
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options)


def chain(*layers: nn.Module) -> Callable[[], tuple[nn.Module, tuple[int, ...]]]:
    """Layers one after the other, between two convolutions."""
    import copy

    return lambda: (_fresh(nn.Sequential(conv(), *copy.deepcopy(layers), conv(act=None))), SHAPE)


def _fresh(net: nn.Module) -> nn.Module:
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return net


def net(forward: Callable[[Net, Tensor], Tensor], **layers: nn.Module) -> Callable[[], tuple[nn.Module, tuple[int, ...]]]:
    import copy

    return lambda: (_fresh(Net(forward, **copy.deepcopy(layers))), SHAPE)


def classifier(pool: nn.Module) -> Callable[[], tuple[nn.Module, tuple[int, ...]]]:
    return chain_to_end(pool, nn.Flatten(), nn.Linear(16, 10))


def chain_to_end(*layers: nn.Module) -> Callable[[], tuple[nn.Module, tuple[int, ...]]]:
    import copy

    return lambda: (_fresh(nn.Sequential(conv(), *copy.deepcopy(layers))), SHAPE)


def excite(self: Net, x: Tensor) -> Tensor:
    x = self.a(x)
    s = self.up(self.down(F.adaptive_avg_pool2d(x, 1)))
    return self.b(x * self.gate(s))


def tokens(forward: Callable[[Net, Tensor], Tensor]) -> Callable[[], tuple[nn.Module, tuple[int, ...]]]:
    """A net of linear layers (and a convolution) on 256 tokens of 64 channels."""
    return lambda: (
        Net(forward, a=nn.Linear(64, 64), b=nn.Linear(64, 64), c=nn.Conv2d(64, 16, 1), n=nn.LayerNorm(64)),
        (256, 64),
    )


PATTERNS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "conv, relu": chain(conv()),
    "conv without batch norm": chain(nn.Conv2d(16, 16, 3), nn.ReLU()),
    "conv, relu6": chain(conv(act=nn.ReLU6)),
    "conv, no activation": chain(conv(act=None)),
    "conv 1x1": chain(conv(size=1)),
    "conv 5x5, stride 2": chain(conv(size=5, stride=2)),
    "conv, dilation 2": chain(conv(dilation=2)),
    "conv, 4 groups": chain(conv(groups=4)),
    "conv, odd channels": chain(conv(16, 13), conv(13, 16)),
    "conv, hardswish": chain(conv(act=nn.Hardswish)),
    "conv, swish": chain(conv(act=nn.SiLU)),
    "conv, sigmoid": chain(conv(act=nn.Sigmoid)),
    "conv, leaky relu": chain(conv(act=nn.LeakyReLU)),
    "conv, gelu": chain(conv(act=nn.GELU)),
    "depthwise, relu": chain(conv(groups=16)),
    "depthwise, relu6": chain(conv(groups=16, act=nn.ReLU6)),
    "depthwise, no activation": chain(conv(groups=16, act=None)),
    "depthwise, hardswish": chain(conv(groups=16, act=nn.Hardswish)),
    "transposed conv": chain(nn.ConvTranspose2d(16, 16, 2, stride=2), nn.ReLU()),
    "residual, relu": net(lambda s, x: s.c(F.relu(s.b(s.a(x)) + x)), a=conv(), b=conv(act=None), c=conv(act=None)),
    "residual of a relu, relu": net(
        lambda s, x: s.c(F.relu(s.b(s.a(y := s.o(x))) + y)), o=conv(), a=conv(), b=conv(act=None), c=conv(act=None)
    ),
    "residual, no activation": net(
        lambda s, x: s.c(s.b(s.a(y := s.o(x))) + y), o=conv(act=None), a=conv(), b=conv(act=None), c=conv(act=None)
    ),
    "residual twice": net(
        lambda s, x: s.e(F.relu(s.d(s.c(y := F.relu(s.b(s.a(z := s.o(x))) + z))) + y)),
        o=conv(),
        a=conv(),
        b=conv(act=None),
        c=conv(),
        d=conv(act=None),
        e=conv(act=None),
    ),
    "residual, downsample": net(
        lambda s, x: s.d(F.relu(s.b(s.a(y := s.o(x))) + s.c(y))),
        o=conv(),
        a=conv(stride=2),
        b=conv(act=None),
        c=conv(size=1, act=None, stride=2),
        d=conv(act=None),
    ),
    "residual of two activations": net(lambda s, x: s.c(s.a(x) + s.b(x)), a=conv(), b=conv(), c=conv(act=None)),
    "residual, relu before the sum": net(
        lambda s, x: s.c(s.b(s.a(y := s.o(x))) + y), o=conv(), a=conv(), b=conv(), c=conv(act=None)
    ),
    "residual, leaky relu before the sum": net(
        lambda s, x: s.c(s.b(s.a(y := s.o(x))) + y),
        o=conv(act=nn.LeakyReLU),
        a=conv(act=nn.LeakyReLU),
        b=conv(act=nn.LeakyReLU),
        c=conv(act=None),
    ),
    "residual, swish before the sum": net(
        lambda s, x: s.c(s.b(s.a(y := s.o(x))) + y),
        o=conv(act=nn.SiLU),
        a=conv(act=nn.SiLU),
        b=conv(act=nn.SiLU),
        c=conv(act=None),
    ),
    "max pool": chain(nn.MaxPool2d(3, 2, 1)),
    "average pool": chain(nn.AvgPool2d(2)),
    "average pool 3x3, padded": chain(nn.AvgPool2d(3, 1, 1)),
    "average pool 3x3, padding not counted": chain(nn.AvgPool2d(3, 1, 1, count_include_pad=False)),
    "adaptive average pool": chain(nn.AdaptiveAvgPool2d(4)),
    "global average pool, linear": classifier(nn.AdaptiveAvgPool2d(1)),
    "global max pool, linear": classifier(nn.AdaptiveMaxPool2d(1)),
    "mean, linear": net(lambda s, x: s.fc(s.a(x).mean((2, 3))), a=conv(), fc=nn.Linear(16, 10)),
    "flatten, linear, relu, linear": chain_to_end(nn.Flatten(), nn.Linear(16 * 256, 64), nn.ReLU(), nn.Linear(64, 10)),
    "concat": net(lambda s, x: s.c(torch.cat([s.a(x), s.b(x)], 1)), a=conv(), b=conv(size=1), c=conv(32, 16, act=None)),
    "concat, one side signed": net(
        lambda s, x: s.c(torch.cat([s.a(x), s.b(x)], 1)), a=conv(), b=conv(size=1, act=None), c=conv(32, 16, act=None)
    ),
    "dense block": net(
        lambda s, x: s.c(torch.cat([z := torch.cat([y := s.o(x), s.a(y)], 1), s.b(z)], 1)),
        o=conv(),
        a=conv(),
        b=conv(32, 16),
        c=conv(48, 16, act=None),
    ),
    "squeeze and excite": net(
        excite,
        a=conv(),
        down=nn.Sequential(nn.Conv2d(16, 8, 1), nn.ReLU()),
        up=nn.Conv2d(8, 16, 1),
        gate=nn.Hardsigmoid(),
        b=conv(act=None),
    ),
    "squeeze and excite, sigmoid": net(
        excite,
        a=conv(),
        down=nn.Sequential(nn.Conv2d(16, 8, 1), nn.ReLU()),
        up=nn.Conv2d(8, 16, 1),
        gate=nn.Sigmoid(),
        b=conv(act=None),
    ),
    "upsample, nearest": chain(nn.Upsample(scale_factor=2)),
    "upsample, bilinear": chain(nn.Upsample(scale_factor=2, mode="bilinear")),
    "split, channel shuffle": net(lambda s, x: s.b(torch.cat(s.a(x).chunk(2, 1)[::-1], 1)), a=conv(), b=conv(act=None)),
    "pixel shuffle": net(lambda s, x: s.b(F.pixel_shuffle(s.a(x), 2)), a=conv(), b=conv(4, 16, act=None)),
    "matmul of two activations": net(lambda s, x: s.c(torch.matmul(s.a(x), s.b(x))), a=conv(), b=conv(), c=conv(act=None)),
    "multiply two activations": net(lambda s, x: s.c(s.a(x) * s.b(x)), a=conv(), b=conv(), c=conv(act=None)),
    "linear, no activation": chain_to_end(
        nn.Flatten(), nn.Linear(16 * 256, 64), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
    ),
    "transposed conv of a signed tensor": net(
        lambda s, x: s.b(s.t(s.a(x))), a=conv(act=None), t=nn.ConvTranspose2d(16, 16, 2, stride=2), b=conv(act=None)
    ),
    "max pool of a signed tensor": net(lambda s, x: s.b(F.max_pool2d(s.a(x), 2)), a=conv(act=None), b=conv(act=None)),
    "average pool of a signed tensor": net(lambda s, x: s.b(F.avg_pool2d(s.a(x), 2)), a=conv(act=None), b=conv(act=None)),
    "split, channel shuffle of a signed tensor": net(
        lambda s, x: s.b(torch.cat(s.a(x).chunk(2, 1)[::-1], 1)), a=conv(act=None), b=conv(act=None)
    ),
    "pixel shuffle of a signed tensor": net(
        lambda s, x: s.b(F.pixel_shuffle(s.a(x), 2)), a=conv(act=None), b=conv(4, 16, act=None)
    ),
    "upsample, nearest, of a signed tensor": net(
        lambda s, x: s.b(F.interpolate(s.a(x), scale_factor=2.0)), a=conv(act=None), b=conv(act=None)
    ),
    "concat of signed tensors": net(
        lambda s, x: s.c(torch.cat([s.a(x), s.b(x)], 1)),
        a=conv(act=None),
        b=conv(size=1, act=None),
        c=conv(32, 16, act=None),
    ),
    "max pool and conv read a signed tensor": net(
        lambda s, x: s.b(F.max_pool2d(y := s.a(x), 2)) + s.c(y),
        a=conv(act=None),
        b=conv(act=None),
        c=conv(stride=2, act=None),
    ),
    "signed conv, permuted, linear": net(
        lambda s, x: s.c(s.b(s.a(x).permute(0, 2, 3, 1))), a=conv(act=None), b=nn.Linear(16, 16), c=nn.Linear(16, 16)
    ),
    "conv of a part of a signed tensor": net(
        lambda s, x: torch.cat([(y := s.a(x))[:, :8], s.b(y[:, 8:])], 1), a=conv(act=None), b=conv(8, 8, act=None)
    ),
    "parts of a signed tensor, added and concatenated": net(
        lambda s, x: s.c(F.relu(torch.cat([(y := s.a(x))[:, :8] + (z := s.b(x))[:, :8], y[:, 8:], z[:, 8:]], 1))),
        a=conv(act=None),
        b=conv(act=None),
        c=conv(24, 16, act=None),
    ),
    "convs without bias or batch norm": chain(bare(), nn.ReLU(), bare(), bare(size=1), nn.ReLU6(), bare(groups=16)),
    "linear layers without bias": chain_to_end(
        nn.Flatten(), nn.Linear(16 * 256, 64, bias=False), nn.ReLU(), nn.Linear(64, 32, bias=False), nn.Linear(32, 10)
    ),
    "transposed conv without bias": chain(nn.ConvTranspose2d(16, 16, 2, stride=2, bias=False), nn.ReLU()),
    "layer without bias, rounded for one reader only": net(
        lambda s, x: s.b(y := s.a(s.o(x))) * torch.sigmoid(y), o=conv(), a=nn.Conv2d(16, 16, 1, bias=False), b=conv()
    ),
    "frozen batch norm, relu": chain(bare(), Constants(factor=(16, 1, 1), shift=(16, 1, 1)), nn.ReLU()),
    "frozen batch norm, residual, relu": net(
        lambda s, x: s.c(F.relu(s.n(s.b(s.a(y := s.o(x)))) + y)),
        o=conv(),
        a=conv(),
        b=bare(),
        n=Constants(factor=(16, 1, 1), shift=(16, 1, 1)),
        c=conv(act=None),
    ),
    "layer scale, residual": net(
        lambda s, x: s.c(s.n(s.b(s.a(y := s.o(x)))) + y),
        o=conv(act=None),
        a=conv(),
        b=nn.Conv2d(16, 16, 1),
        n=Constants(factor=(1, 16, 1, 1)),
        c=conv(act=None),
    ),
    "linear, layer scale, residual": net(
        lambda s, x: s.c(s.n(s.b(s.a(y := s.o(x).mean((2, 3))))) + y),
        o=conv(act=None),
        a=nn.Sequential(nn.Linear(16, 32), nn.ReLU()),
        b=nn.Linear(32, 16),
        n=Constants(factor=(16,)),
        c=nn.Linear(16, 10),
    ),
    "a tenth of a conv, residual": net(
        lambda s, x: s.c(0.1 * s.b(s.a(y := s.o(x))) + y), o=conv(act=None), a=conv(), b=bare(), c=conv(act=None)
    ),
    "pre-activation": net(
        lambda s, x: s.d(F.relu(s.n2(s.b(F.relu(s.a(F.relu(s.n1(y := s.o(x)))))) + y))),
        o=bare(),
        n1=nn.BatchNorm2d(16),
        a=conv(),
        b=bare(),
        n2=nn.BatchNorm2d(16),
        d=bare(),
    ),
    "dense concat before a batch norm": net(
        lambda s, x: s.c(F.relu(s.n2(torch.cat([y := s.o(x), s.a(F.relu(s.n1(y)))], 1)))),
        o=bare(),
        n1=nn.BatchNorm2d(16),
        a=bare(),
        n2=nn.BatchNorm2d(32),
        c=bare(32),
    ),
    "conv1d": net(
        lambda s, x: s.c(F.relu(s.b(s.a(y := s.o(x.flatten(2)))) + y)),
        o=conv1d(),
        a=conv1d(groups=16),
        b=conv1d(act=None),
        c=conv1d(act=None),
    ),
    "pool and mean of the input": net(
        lambda s, x: s.b(F.max_pool2d(x, 3, 1, 1)).mean((2, 3)) + s.c(x.mean((2, 3))), b=conv(), c=nn.Linear(16, 16)
    ),
    "layers used twice": net(
        lambda s, x: s.b(s.a(F.relu(s.b(s.a(s.o(x)))))), o=conv(), a=nn.Conv2d(16, 16, 3), b=nn.Conv2d(16, 16, 1)
    ),
    "layer without bias, concatenated and read in float": net(
        lambda s, x: s.c(torch.cat([y := s.a(s.o(x)), s.b(x)], 1)) * (y.abs() < 1),
        o=conv(act=None),
        a=bare(),
        b=bare(),
        c=conv(32, 16, act=None),
    ),
    # linear layers on tokens, as transformers have them
    "tokens: linear, linear": tokens(lambda s, x: s.b(s.a(x))),
    "tokens: linear, relu, linear": tokens(lambda s, x: s.b(F.relu(s.a(x)))),
    "tokens: linear, relu6, linear": tokens(lambda s, x: s.b(F.relu6(s.a(x)))),
    "tokens: linear, leaky relu, linear": tokens(lambda s, x: s.b(F.leaky_relu(s.a(x)))),
    "tokens: linear, permuted, conv": tokens(lambda s, x: s.c(s.a(x).transpose(1, 2).unflatten(2, (16, 16)))),
    "tokens: residual": tokens(lambda s, x: s.a(y := s.b(s.a(x)) + x) + y),
    "tokens in rows and columns: linear, linear": tokens(lambda s, x: s.b(s.a(x.unflatten(1, (16, 16))))),
    "tokens in rows and columns: linear, relu, linear": tokens(lambda s, x: s.b(F.relu(s.a(x.unflatten(1, (16, 16)))))),
    "tokens in rows and columns: linear, silu, linear": tokens(lambda s, x: s.b(F.silu(s.a(x.unflatten(1, (16, 16)))))),
    "tokens in rows and columns: residual": tokens(lambda s, x: s.a(y := s.b(s.a(x := x.unflatten(1, (16, 16)))) + x) + y),
    "tokens in rows and columns: linear, permuted, conv": tokens(
        lambda s, x: s.c(s.a(x.unflatten(1, (16, 16))).permute(0, 3, 1, 2))
    ),
    "tokens in rows and columns: layer norm, linear": tokens(lambda s, x: s.b(s.n(s.a(x.unflatten(1, (16, 16)))))),
    "tokens: linear, gelu, linear": tokens(lambda s, x: s.b(F.gelu(s.a(x)))),
    "tokens: layer norm, linear": tokens(lambda s, x: s.b(s.n(s.a(x)))),
    "tokens: attention": tokens(
        lambda s, x: s.b(
            F.scaled_dot_product_attention(
                *s.a(x).unflatten(2, (4, 16)).transpose(1, 2).unsqueeze(0).expand(3, -1, -1, -1, -1)
            )
            .transpose(1, 2)
            .flatten(2)
        )
    ),
    "tokens: attention, products scaled": tokens(
        lambda s, x: s.b(
            ((q := s.a(x).unflatten(2, (2, 32)).transpose(1, 2)) @ q.transpose(2, 3) * 32**-0.5)
            .softmax(3)
            .matmul(q)
            .transpose(1, 2)
            .flatten(2)
        )
    ),
    "tokens: layer norm, residual": tokens(lambda s, x: s.b(s.n(s.a(x)) + x)),
    "tokens: layer norm, gate": tokens(lambda s, x: s.b(s.n(s.a(x)) * x)),
    "tokens: linear, reshaped, residual": tokens(lambda s, x: s.b(s.a(x).unflatten(1, (16, 16)).flatten(1, 2) + x)),
    "tokens: linear, rolled, residual": tokens(
        lambda s, x: s.b(s.a(x).unflatten(1, (16, 16)).roll((2, 2), (1, 2)).flatten(1, 2) + x)
    ),
    "slices of a signed tensor": net(
        lambda s, x: s.c(torch.cat([(y := s.b(z := s.a(x)))[:, :8] + z, y[:, 8:]], 1)),
        a=conv(16, 8),
        b=conv(8, 16, act=None),
        c=conv(act=None),
    ),
    "sum of three branches": net(
        lambda s, x: s.d(s.b(y := s.a(x)) + s.c(y) + y),
        a=conv(),
        b=conv(groups=16, act=None),
        c=conv(groups=16, size=1, act=None),
        d=conv(act=None),
    ),
}
