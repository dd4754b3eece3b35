"""What most architectures are built from."""

from collections.abc import Iterable

from torch import nn


def conv_bn(
    channels_in: int,
    channels_out: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Convolution, batch norm and, unless None, an activation; the image keeps its size at stride 1."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels_out, eps=eps),
    ]
    return nn.Sequential(*layers, *([activation()] if activation is not None else []))


def scaled(channels: int, scale: float) -> int:
    """A channel count times a width multiplier, rounded to a multiple of 8 that never falls below nine tenths.

    >>> scaled(32, 0.75), scaled(24, 0.35)
    (24, 8)
    """
    rounded = max(8, int(channels * scale + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels * scale else rounded


def fewer_halvings(strides: Iterable[int], count: int = 2) -> list[int]:
    """The strides with the first ``count`` twos made ones: images of 32 pixels would be gone after five halvings.

    >>> fewer_halvings([2, 1, 2, 2])
    [1, 1, 1, 2]
    """
    kept = []
    for stride in strides:
        kept.append(1 if stride == 2 and count > 0 else stride)
        count -= stride == 2
    return kept
