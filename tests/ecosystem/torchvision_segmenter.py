"""torchvision: LR-ASPP on MobileNetV3, which gives a dict of maps."""

import torch
import torch.nn.functional as F
from deploy import deploy
from torchvision.models.segmentation import lraspp_mobilenet_v3_large

import quaver

torch.manual_seed(0)
images, masks = torch.randn(4, 3, 64, 64), torch.randint(0, 5, (4, 64, 64))
model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
program = quaver.quant_aware(model, example_inputs=(images,))
optimizer = torch.optim.SGD(program.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    F.cross_entropy(program(images)["out"], masks).backward()
    optimizer.step()
deploy(program, images)
