"""QAT with a plain training loop: what changes is two lines, marked ←."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import quaver
from quaver.data import load_digits
from quaver.models import MobileNetV1

torch.manual_seed(0)
train, test = load_digits(size=16)
model = MobileNetV1(num_classes=10, scale=0.25, small_images=True)

model = quaver.quant_aware(model, example_inputs=(train[0][0][None],))  # ←
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(2):
    for images, labels in DataLoader(train, 64, shuffle=True, drop_last=True):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
model = quaver.convert(model)  # ←

images, labels = next(iter(DataLoader(test, len(test))))
with torch.no_grad():
    print(f"int8 top-1: {(model(images).argmax(1) == labels).float().mean():.2%}")
