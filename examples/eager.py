"""A live model, quantized where it stands: MobileNetV1 on images of CIFAR-10's shape. What is Quaver's is marked ←."""

import tempfile

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import quaver
from quaver.data import load_digits
from quaver.models import MobileNetV1

torch.manual_seed(0)
train, test = load_digits(size=32)
net = MobileNetV1(num_classes=10, scale=0.25, small_images=True)

quanter = quaver.QAT()  # ←
quanter.quantize(net)  # ←
optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
for images, labels in 2 * list(DataLoader(train, 16, shuffle=True)):  # two epochs
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

net.eval()
images, labels = next(iter(DataLoader(test, len(test))))
with torch.no_grad():
    print(f"net.eval(): {(net(images).argmax(1) == labels).float().mean():.2%}")
with tempfile.TemporaryDirectory() as folder:
    spec = [quaver.InputSpec([None, 3, 32, 32], "float32", "image")]
    artefact = quanter.save_quantized_model(net, folder, input_spec=spec)  # ←
    deployed = quaver.runtime.load(artefact)(images.numpy())
print(f"int8 on the engine: {(torch.from_numpy(deployed).argmax(1) == labels).float().mean():.2%}")
