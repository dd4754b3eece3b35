"""timm: a normalizer-free RegNet, whose convolutions standardise their weights."""

import timm
import torch
import torch.nn.functional as F
from deploy import deploy

import quaver

torch.manual_seed(0)
images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
program = quaver.quant_aware(timm.create_model("nf_regnet_b0", num_classes=10), example_inputs=(images,))
optimizer = torch.optim.SGD(program.parameters(), lr=0.001)
for _ in range(2):
    optimizer.zero_grad()
    F.cross_entropy(program(images), labels).backward()
    optimizer.step()
deploy(program, images)
