"""lightning: a module with its sanity check, validation and trainer."""

import lightning
import torch
import torch.nn.functional as F
from deploy import deploy
from torch.utils.data import DataLoader, TensorDataset

import quaver
from quaver.models import MobileNetV1

torch.manual_seed(0)
images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = quaver.quant_aware(MobileNetV1(num_classes=10, scale=0.25), example_inputs=(images,))

    def training_step(self, batch, index):
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("top1", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


module, loader = Classifier(), DataLoader(TensorDataset(images, labels), 8)
lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False).fit(module, loader, loader)
deploy(module.model, images)
