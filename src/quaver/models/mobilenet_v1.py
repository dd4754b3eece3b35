"""MobileNetV1 (Howard et al., 2017): depthwise separable convolutions, nothing else."""

from torch import Tensor, nn

from quaver.models.blocks import conv_bn, fewer_halvings, scaled

# channels out and stride of the thirteen separable blocks, at 224 x 224
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


class MobileNetV1(nn.Module):
    """MobileNetV1 with a width multiplier; ``small_images`` keeps the first two strides at 1."""

    def __init__(
        self, num_classes: int = 1000, scale: float = 1.0, *, small_images: bool = False, in_channels: int = 3
    ) -> None:
        super().__init__()
        channels = scaled(32, scale)
        strides = [2, *(stride for _, stride in BLOCKS)]
        stem_stride, *strides = fewer_halvings(strides) if small_images else strides
        self.stem = conv_bn(in_channels, channels, 3, stem_stride)
        blocks = []
        for (width, _), stride in zip(BLOCKS, strides, strict=True):
            blocks.append(separable(channels, scaled(width, scale), stride))
            channels = scaled(width, scale)
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(self.blocks(self.stem(x))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


def separable(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    """A depthwise convolution, then a pointwise one."""
    return nn.Sequential(
        conv_bn(channels_in, channels_in, 3, stride, groups=channels_in), conv_bn(channels_in, channels_out, 1)
    )


def mobilenet_v1(
    num_classes: int = 1000, scale: float = 1.0, *, small_images: bool = False, in_channels: int = 3
) -> MobileNetV1:
    """MobileNetV1 as published."""
    return MobileNetV1(num_classes, scale, small_images=small_images, in_channels=in_channels)
