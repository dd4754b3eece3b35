"""segmentation_models_pytorch: U-Net on ResNet-18, its Dice loss."""

import segmentation_models_pytorch as smp
import torch
from deploy import deploy

import quaver

torch.manual_seed(0)
images, masks = torch.randn(4, 3, 64, 64), torch.randint(0, 3, (4, 64, 64))
program = quaver.quant_aware(smp.Unet("resnet18", encoder_weights=None, classes=3), example_inputs=(images,))
criterion, optimizer = smp.losses.DiceLoss("multiclass"), torch.optim.SGD(program.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    criterion(program(images), masks).backward()
    optimizer.step()
deploy(program, images)
