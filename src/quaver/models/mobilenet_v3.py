"""MobileNetV3, large and small (Howard et al., 2019): inverted residuals with squeeze-and-excitation and hard swish."""

from typing import NamedTuple

from torch import Tensor, nn

from quaver.models.blocks import conv_bn, fewer_halvings, scaled

EPS = 1e-3  # of every batch norm, as published


class Block(NamedTuple):
    """A row of the paper's tables 1 and 2: kernel, expanded width, width out, squeeze, hard swish, stride."""

    kernel: int
    wide: int
    out: int
    squeeze: bool
    swish: bool
    stride: int


LARGE = (
    Block(3, 16, 16, False, False, 1),
    Block(3, 64, 24, False, False, 2),
    Block(3, 72, 24, False, False, 1),
    Block(5, 72, 40, True, False, 2),
    Block(5, 120, 40, True, False, 1),
    Block(5, 120, 40, True, False, 1),
    Block(3, 240, 80, False, True, 2),
    Block(3, 200, 80, False, True, 1),
    Block(3, 184, 80, False, True, 1),
    Block(3, 184, 80, False, True, 1),
    Block(3, 480, 112, True, True, 1),
    Block(3, 672, 112, True, True, 1),
    Block(5, 672, 160, True, True, 2),
    Block(5, 960, 160, True, True, 1),
    Block(5, 960, 160, True, True, 1),
)
SMALL = (
    Block(3, 16, 16, True, False, 2),
    Block(3, 72, 24, False, False, 2),
    Block(3, 88, 24, False, False, 1),
    Block(5, 96, 40, True, True, 2),
    Block(5, 240, 40, True, True, 1),
    Block(5, 240, 40, True, True, 1),
    Block(5, 120, 48, True, True, 1),
    Block(5, 144, 48, True, True, 1),
    Block(5, 288, 96, True, True, 2),
    Block(5, 576, 96, True, True, 1),
    Block(5, 576, 96, True, True, 1),
)


class SqueezeExcite(nn.Module):
    """Each channel times a weight from 0 to 1, which two small layers read from the averages of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = scaled(channels // 4, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.layers = nn.Sequential(nn.Conv2d(channels, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, channels, 1))
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """The weighted channels."""
        weights: Tensor = self.gate(self.layers(self.pool(x)))
        return x * weights


class InvertedResidual(nn.Module):
    """Widen, filter each channel, weigh the channels, narrow; added to the input where the shapes allow it."""

    def __init__(self, channels_in: int, block: Block, scale: float, stride: int) -> None:
        super().__init__()
        wide, out = scaled(block.wide, scale), scaled(block.out, scale)
        activation = nn.Hardswish if block.swish else nn.ReLU
        layers: list[nn.Module] = []
        if wide != channels_in:
            layers.append(conv_bn(channels_in, wide, 1, activation=activation, eps=EPS))
        layers.append(conv_bn(wide, wide, block.kernel, stride, groups=wide, activation=activation, eps=EPS))
        if block.squeeze:
            layers.append(SqueezeExcite(wide))
        layers.append(conv_bn(wide, out, 1, activation=None, eps=EPS))
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and channels_in == out
        self.channels = out

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, on top of its input where it adds."""
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV3(nn.Module):
    """MobileNetV3 with a width multiplier; ``small_images`` keeps the first two strides at 1."""

    def __init__(
        self, table: tuple[Block, ...], last: int, num_classes: int, scale: float, *, small_images: bool = False
    ) -> None:
        super().__init__()
        channels = scaled(16, scale)
        strides = [2, *(block.stride for block in table)]
        stem_stride, *strides = fewer_halvings(strides) if small_images else strides
        self.stem = conv_bn(3, channels, 3, stem_stride, activation=nn.Hardswish, eps=EPS)
        blocks = []
        for block, stride in zip(table, strides, strict=True):
            blocks.append(InvertedResidual(channels, block, scale, stride))
            channels = blocks[-1].channels
        self.blocks = nn.Sequential(*blocks)
        self.head = conv_bn(channels, 6 * channels, 1, activation=nn.Hardswish, eps=EPS)
        self.pool = nn.AdaptiveAvgPool2d(1)
        last = scaled(last, scale)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, last), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(last, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(self.head(self.blocks(self.stem(x)))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


def mobilenet_v3_large(num_classes: int = 1000, scale: float = 1.0, *, small_images: bool = False) -> MobileNetV3:
    """MobileNetV3-Large."""
    return MobileNetV3(LARGE, 1280, num_classes, scale, small_images=small_images)


def mobilenet_v3_small(num_classes: int = 1000, scale: float = 1.0, *, small_images: bool = False) -> MobileNetV3:
    """MobileNetV3-Small."""
    return MobileNetV3(SMALL, 1024, num_classes, scale, small_images=small_images)
