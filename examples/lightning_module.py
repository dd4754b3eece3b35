"""QAT in a Lightning module: what changes is two lines, marked ←. Needs `pip install lightning`."""

import lightning
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import quaver
from quaver.data import load_digits
from quaver.models import MobileNetV1

torch.manual_seed(0)
train, test = load_digits(size=16)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        model = MobileNetV1(num_classes=10, scale=0.25, small_images=True)
        self.model = quaver.quant_aware(model, example_inputs=(train[0][0][None],))  # ←

    def training_step(self, batch, index):
        images, labels = batch
        loss = F.cross_entropy(self.model(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        images, labels = batch
        self.log("top1", (self.model(images).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


module = Digits()
trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(module, DataLoader(train, 32, shuffle=True, drop_last=True), DataLoader(test, len(test)))
int8 = quaver.convert(module.model)  # ←

images, labels = next(iter(DataLoader(test, len(test))))
with torch.no_grad():
    print(f"int8 top-1: {(int8(images).argmax(1) == labels).float().mean():.2%}")
