"""MobileNetV2 (Sandler et al., 2018): inverted residuals with linear bottlenecks."""

from torch import Tensor, nn

from quaver.models.blocks import conv_bn, fewer_halvings, scaled

# expansion, channels out, repeats, stride
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; added to the input where the shapes allow it."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels_in * expansion
        layers = [conv_bn(channels_in, wide, 1, activation=nn.ReLU6)] if expansion > 1 else []
        layers += [
            conv_bn(wide, wide, 3, stride, groups=wide, activation=nn.ReLU6),
            conv_bn(wide, channels_out, 1, activation=None),
        ]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, on top of its input where it adds."""
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """MobileNetV2 with a width multiplier; ``small_images`` keeps the first two strides at 1."""

    def __init__(self, num_classes: int = 1000, scale: float = 1.0, *, small_images: bool = False) -> None:
        super().__init__()
        channels = scaled(32, scale)
        strides = [2, *(stride for *_, stride in STAGES)]
        stem_stride, *strides = fewer_halvings(strides) if small_images else strides
        self.stem = conv_bn(3, channels, 3, stem_stride, activation=nn.ReLU6)
        blocks = []
        for (expansion, width, repeats, _), stride in zip(STAGES, strides, strict=True):
            for repeat in range(repeats):
                out = scaled(width, scale)
                blocks.append(InvertedResidual(channels, out, stride if repeat == 0 else 1, expansion))
                channels = out
        self.blocks = nn.Sequential(*blocks)
        last = scaled(1280, max(1.0, scale))
        self.head = conv_bn(channels, last, 1, activation=nn.ReLU6)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(self.head(self.blocks(self.stem(x)))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


def mobilenet_v2(num_classes: int = 1000, scale: float = 1.0, *, small_images: bool = False) -> MobileNetV2:
    """MobileNetV2 as published."""
    return MobileNetV2(num_classes, scale, small_images=small_images)
