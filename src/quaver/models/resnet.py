"""ResNet (He et al., 2015), with the stride in the 3x3 convolution of a bottleneck."""

from torch import Tensor, nn

from quaver.models.blocks import conv_bn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(channels_in, width, 3, stride), conv_bn(width, width, 3, activation=None))
        self.shortcut = shortcut(channels_in, width, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of body plus shortcut."""
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


class Bottleneck(nn.Module):
    """Narrow, filter, widen, around a shortcut."""

    expansion = 4

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.body = nn.Sequential(
            conv_bn(channels_in, width, 1), conv_bn(width, width, 3, stride), conv_bn(width, out, 1, activation=None)
        )
        self.shortcut = shortcut(channels_in, out, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of body plus shortcut."""
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


def shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Module:
    """The input itself, or a 1x1 convolution where the shapes differ."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return conv_bn(channels_in, channels_out, 1, stride, activation=None)


class ResNet(nn.Module):
    """A ResNet of some stages, the first ``width`` channels wide; ``small_images`` leaves out the stem's stride and pool."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        repeats: tuple[int, ...],
        num_classes: int = 1000,
        *,
        small_images: bool = False,
        width: int = 64,
    ) -> None:
        super().__init__()
        stem = [conv_bn(3, width, 3)] if small_images else [conv_bn(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
        self.stem = nn.Sequential(*stem)
        channels, stages = width, []
        for index, count in enumerate(repeats):
            wide, blocks = width * 2**index, []
            for repeat in range(count):
                blocks.append(block(channels, wide, 2 if index and repeat == 0 else 1))
                channels = wide * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(self.stages(self.stem(x))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


# The ResNets for CIFAR-10 (He et al., 2015, section 4.2). A shortcut that changes shape is a 1x1 convolution, the paper's
# option B: its option A pads with channels of zeros, which engines run in float.


def resnet20(num_classes: int = 10) -> ResNet:
    """ResNet-20 for images of 32 pixels: stages of 16, 32 and 64 channels."""
    return ResNet(BasicBlock, (3, 3, 3), num_classes, small_images=True, width=16)


def resnet56(num_classes: int = 10) -> ResNet:
    """ResNet-56 for images of 32 pixels: stages of 16, 32 and 64 channels."""
    return ResNet(BasicBlock, (9, 9, 9), num_classes, small_images=True, width=16)


# and those for ImageNet


def resnet18(num_classes: int = 1000, *, small_images: bool = False) -> ResNet:
    """ResNet-18."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, small_images=small_images)


def resnet34(num_classes: int = 1000, *, small_images: bool = False) -> ResNet:
    """ResNet-34."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, small_images=small_images)


def resnet50(num_classes: int = 1000, *, small_images: bool = False) -> ResNet:
    """ResNet-50."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, small_images=small_images)


def resnet101(num_classes: int = 1000, *, small_images: bool = False) -> ResNet:
    """ResNet-101."""
    return ResNet(Bottleneck, (3, 4, 23, 3), num_classes, small_images=small_images)
