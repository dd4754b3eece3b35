"""SqueezeNet 1.1 (Iandola et al., 2016): fire modules, no batch norm, no linear layer."""

import torch
from torch import Tensor, nn

# channels between and behind the two convolutions side by side, per stage; a pool stands in front of each stage
STAGES = (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256)))


class Fire(nn.Module):
    """Narrow with 1x1, then widen with 1x1 and 3x3 side by side."""

    def __init__(self, channels_in: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(channels_in, narrow, 1), nn.ReLU())
        self.point = nn.Sequential(nn.Conv2d(narrow, wide, 1), nn.ReLU())
        self.around = nn.Sequential(nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU())
        self.channels = 2 * wide

    def forward(self, x: Tensor) -> Tensor:
        """The channels of both, one after the other."""
        x = self.squeeze(x)
        return torch.cat([self.point(x), self.around(x)], 1)


class SqueezeNet(nn.Module):
    """Eight fire modules in three stages; ``small_images`` leaves out the stem's stride and pool."""

    def __init__(self, num_classes: int = 1000, *, small_images: bool = False) -> None:
        super().__init__()
        stem = nn.Conv2d(3, 64, 3, padding=1) if small_images else nn.Conv2d(3, 64, 3, 2)
        self.stem = nn.Sequential(stem, nn.ReLU())
        channels, stages = 64, []
        for index, blocks in enumerate(STAGES):
            layers: list[nn.Module] = [] if small_images and index == 0 else [nn.MaxPool2d(3, 2, ceil_mode=True)]
            for narrow, wide in blocks:
                fire = Fire(channels, narrow, wide)
                layers.append(fire)
                channels = fire.channels
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(channels, num_classes, 1), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # without batch norm, torch's own start lets the signal fade with depth
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.classifier[1].weight, std=0.01)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Logits: the average over the picture of what each pixel says, as published, behind a ReLU."""
        logits: Tensor = self.pool(self.classifier(self.stages(self.stem(x)))).flatten(1)
        return logits


def squeezenet(num_classes: int = 1000, *, small_images: bool = False) -> SqueezeNet:
    """SqueezeNet 1.1, which computes 2.4 times less than 1.0 for the same accuracy."""
    return SqueezeNet(num_classes, small_images=small_images)
