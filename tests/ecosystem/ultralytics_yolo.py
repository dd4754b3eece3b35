"""ultralytics: YOLOv8n with its own loss, predict() with the program, and the file."""

from types import SimpleNamespace

import torch
from deploy import deploy
from ultralytics import YOLO
from ultralytics.utils.loss import v8DetectionLoss

import quaver

torch.manual_seed(0)
yolo = YOLO("yolov8n.yaml")
images = torch.rand(2, 3, 64, 64)
boxes = {"batch_idx": torch.tensor([0.0, 1.0]), "cls": torch.tensor([[0.0], [1.0]]), "bboxes": torch.full((2, 4), 0.5)}
program = quaver.quant_aware(yolo.model, example_inputs=(images,))
yolo.model.args = SimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
loss, optimizer = v8DetectionLoss(yolo.model), torch.optim.SGD(program.parameters(), lr=0.001)
for _ in range(2):
    optimizer.zero_grad()
    loss(program.train()(images), boxes)[0].sum().backward()
    optimizer.step()
yolo.model = program.eval()
yolo.predict(images, imgsz=64, verbose=False)
deploy(program, images)
