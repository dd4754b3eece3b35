"""timm: MobileNetV3, its own loss and exponential average."""

import timm
import torch
from deploy import deploy
from timm.loss import LabelSmoothingCrossEntropy
from timm.utils import ModelEmaV3

import quaver

torch.manual_seed(0)
images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
model = timm.create_model("mobilenetv3_small_050", num_classes=10)
program = quaver.quant_aware(model, example_inputs=(images,))
average, criterion = ModelEmaV3(program, decay=0.9), LabelSmoothingCrossEntropy()
optimizer = torch.optim.SGD(program.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    criterion(program(images), labels).backward()
    optimizer.step()
    average.update(program)
deploy(average.module, images)
