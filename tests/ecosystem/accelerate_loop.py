"""accelerate: a loop of one's own, with gradient accumulation and clipping."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from deploy import deploy
from torch.utils.data import DataLoader, TensorDataset

import quaver
from quaver.models import MobileNetV2

torch.manual_seed(0)
images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
program = quaver.quant_aware(MobileNetV2(num_classes=10, scale=0.25), example_inputs=(images,))
optimizer = torch.optim.SGD(program.parameters(), lr=0.01)
program, optimizer, loader = accelerator.prepare(program, optimizer, DataLoader(TensorDataset(images, labels), 4))
for inputs, targets in loader:
    with accelerator.accumulate(program):
        accelerator.backward(F.cross_entropy(program(inputs), targets))
        accelerator.clip_grad_norm_(program.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
deploy(accelerator.unwrap_model(program), images)
