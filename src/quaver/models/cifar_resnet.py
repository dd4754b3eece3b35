"""The ResNets for CIFAR-10 (He et al., 2015, section 4.2): three stages of 16, 32 and 64 channels.

A shortcut that changes shape is a 1x1 convolution, the paper's option B: its option A pads with channels of zeros, which
engines run in float.
"""

from torch import Tensor, nn

from quaver.models.blocks import conv_bn
from quaver.models.resnet import BasicBlock


class CifarResNet(nn.Module):
    """``6 * repeats + 2`` layers, of which ``repeats`` blocks per stage."""

    def __init__(self, repeats: int, num_classes: int = 10, *, width: int = 16) -> None:
        super().__init__()
        self.stem = conv_bn(3, width, 3)
        channels, stages = width, []
        for index in range(3):
            blocks = []
            for repeat in range(repeats):
                blocks.append(BasicBlock(channels, width * 2**index, 2 if index and repeat == 0 else 1))
                channels = width * 2**index
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(self.stages(self.stem(x))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


def resnet20(num_classes: int = 10) -> CifarResNet:
    """ResNet-20 for images of 32 pixels."""
    return CifarResNet(3, num_classes)


def resnet56(num_classes: int = 10) -> CifarResNet:
    """ResNet-56 for images of 32 pixels."""
    return CifarResNet(9, num_classes)
