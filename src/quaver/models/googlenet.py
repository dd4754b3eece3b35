"""GoogLeNet (Szegedy et al., 2014), with batch norm and without the auxiliary heads, as it is usually trained today."""

import torch
from torch import Tensor, nn

from quaver.models.blocks import conv_bn

# channels of the branches: 1x1; 3x3, with its bottleneck first; the second 3x3, the same; 1x1 after the pool
Branches = tuple[int, tuple[int, int], tuple[int, int], int]
STAGES: tuple[tuple[Branches, ...], ...] = (
    (
        (64, (96, 128), (16, 32), 32),
        (128, (128, 192), (32, 96), 64),
    ),
    (
        (192, (96, 208), (16, 48), 64),
        (160, (112, 224), (24, 64), 64),
        (128, (128, 256), (24, 64), 64),
        (112, (144, 288), (32, 64), 64),
        (256, (160, 320), (32, 128), 128),
    ),
    (
        (256, (160, 320), (32, 128), 128),
        (384, (192, 384), (48, 128), 128),
    ),
)


class Inception(nn.Module):
    """Four views of the same tensor, side by side. The paper's 5x5 branch is 3x3, as in the weights that are around."""

    def __init__(self, channels_in: int, branches: Branches) -> None:
        super().__init__()
        point, (narrow, wide), (narrow2, wide2), pooled = branches
        self.point = conv_bn(channels_in, point, 1)
        self.middle = nn.Sequential(conv_bn(channels_in, narrow, 1), conv_bn(narrow, wide, 3))
        self.second = nn.Sequential(conv_bn(channels_in, narrow2, 1), conv_bn(narrow2, wide2, 3))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(channels_in, pooled, 1))
        self.channels = point + wide + wide2 + pooled

    def forward(self, x: Tensor) -> Tensor:
        """The four branches' channels, one after the other."""
        return torch.cat([self.point(x), self.middle(x), self.second(x), self.pooled(x)], 1)


class GoogLeNet(nn.Module):
    """Nine inception blocks in three stages; ``small_images`` leaves out the stem's stride and pools."""

    def __init__(
        self,
        num_classes: int = 1000,
        *,
        small_images: bool = False,
        stages: tuple[tuple[Branches, ...], ...] = STAGES,
    ) -> None:
        super().__init__()
        first = [conv_bn(3, 64, 3)] if small_images else [conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True)]
        second = [] if small_images else [nn.MaxPool2d(3, 2, ceil_mode=True)]
        self.stem = nn.Sequential(*first, conv_bn(64, 64, 1), conv_bn(64, 192, 3), *second)
        channels, built = 192, []
        for index, blocks in enumerate(stages):
            layers: list[nn.Module] = [] if index == 0 else [nn.MaxPool2d(3 if index == 1 else 2, 2, ceil_mode=True)]
            for branches in blocks:
                block = Inception(channels, branches)
                layers.append(block)
                channels = block.channels
            built.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*built)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(channels, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(self.stages(self.stem(x))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


def googlenet(num_classes: int = 1000, *, small_images: bool = False) -> GoogLeNet:
    """GoogLeNet, also called Inception v1."""
    return GoogLeNet(num_classes, small_images=small_images)
