"""torchvision: FCOS, with a trunk of dynamic sizes, trained by the detector's own loss."""

import torch
from deploy import deploy
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.mobilenetv2 import mobilenet_v2

import quaver

torch.manual_seed(0)
trunk = mobilenet_v2(weights=None).features[:14]
trunk.out_channels = 96
anchors = AnchorGenerator(sizes=((16,),), aspect_ratios=((1.0,),))
detector = FCOS(trunk, num_classes=4, anchor_generator=anchors, min_size=64, max_size=96)
detector.backbone = quaver.quant_aware(trunk, example_inputs=(torch.randn(2, 3, 64, 64),), dynamic=True)
images = [torch.rand(3, 64, 64), torch.rand(3, 64, 96)]
targets = [{"boxes": torch.tensor([[8.0, 8, 40, 40]]), "labels": torch.tensor([1])} for _ in images]
optimizer = torch.optim.SGD(detector.parameters(), lr=0.001)
for _ in range(2):
    optimizer.zero_grad()
    sum(detector.train()(images, targets).values()).backward()
    optimizer.step()
assert "boxes" in detector.eval()(images)[0]
deploy(detector.backbone, torch.randn(2, 3, 96, 64))
