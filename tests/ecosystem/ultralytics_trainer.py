"""ultralytics: YOLO11n by its own DetectionTrainer, with exponential average and validation."""

from itertools import product
from pathlib import Path

import numpy as np
import torch
from deploy import deploy
from PIL import Image
from torch import nn
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.nn.tasks import DetectionModel

import quaver


class QuantizedYOLO(DetectionModel):
    """A detection model whose layers are those of a program."""

    def __init__(self, model, images):
        nn.Module.__init__(self)
        self.program = quaver.quant_aware(model, example_inputs=(images,), dynamic=True)
        self.yaml, self.task, self.stride, self.criterion = model.yaml, "detect", model.stride, None

    @property
    def model(self):
        return self.program.model

    def predict(self, images, **options):
        return self.program(images)


class QuantizedTrainer(DetectionTrainer):
    def get_model(self, *args, **kwargs):
        images = torch.zeros(2, 3, self.args.imgsz, self.args.imgsz)
        return QuantizedYOLO(super().get_model(*args, **kwargs), images)

    def save_model(self):
        quaver.save(self.ema.ema.program, self.last)

    def final_eval(self):
        """Their own reads best.pt, which save_model does not write."""


torch.manual_seed(0)
for part, index in product(("train", "val"), range(4)):
    image, label = Path(f"data/images/{part}/{index}.png"), Path(f"data/labels/{part}/{index}.txt")
    image.parent.mkdir(parents=True, exist_ok=True)
    label.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(index).integers(0, 256, (64, 64, 3), np.uint8)).save(image)
    label.write_text(f"{index % 2} 0.5 0.5 0.5 0.5\n")
here = Path.cwd()
Path("shapes.yaml").write_text(f"path: {here}/data\ntrain: images/train\nval: images/val\nnames: [circle, square]\n")

settings = {"model": "yolo11n.yaml", "data": "shapes.yaml", "imgsz": 64, "epochs": 1, "batch": 2, "amp": False}
trainer = QuantizedTrainer(overrides=settings | {"device": "cpu", "plots": False, "project": str(here)})
trainer.train()
deploy(quaver.load(trainer.last), torch.rand(2, 3, 64, 64))
