"""What most architectures are built from."""

from torch import nn


def conv_bn(
    channels_in: int,
    channels_out: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution, batch norm and, unless None, an activation; the image keeps its size at stride 1."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels_out),
    ]
    return nn.Sequential(*layers, *([activation()] if activation is not None else []))


def scaled(channels: int, scale: float) -> int:
    """A channel count times a width multiplier, rounded to a multiple of 8 that never falls below nine tenths.

    >>> scaled(32, 0.75), scaled(24, 0.35)
    (24, 8)
    """
    rounded = max(8, int(channels * scale + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels * scale else rounded
