"""A user of Lightning, accelerate or Hugging Face: what those do to a model is done here, without them installed."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from tiny import Tiny

pytestmark = pytest.mark.slow

EXAMPLE = torch.zeros(1, 3, 8, 8)


def batches(count=4):
    """Images whose brightness is their class."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        labels = torch.randint(0, 4, (16,), generator=generator)
        yield torch.randn(16, 3, 8, 8, generator=generator) / 4 + labels[:, None, None, None] / 2, labels


class Module(nn.Module):
    """What a LightningModule of theirs looks like."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = quaver.quant_aware(Tiny(), example_inputs=(EXAMPLE,))

    def training_step(self, batch):
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def validation_step(self, batch):
        images, labels = batch
        return (self.net(images).argmax(1) == labels).float().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)


class Trainer:
    """What Lightning's does: a sanity check first, modes switched around validation, an average, checkpoints of state."""

    def fit(self, module, epochs, checkpoint=None):
        optimizer, schedule = module.configure_optimizers()
        if checkpoint is not None:
            for part, state in zip((module, optimizer, schedule), checkpoint[0], strict=True):
                part.load_state_dict(state)
            torch.set_rng_state(checkpoint[1])
        else:
            self.validate(module)  # before any training step
            torch.manual_seed(1)
        self.average = copy.deepcopy(module)
        for _ in range(epochs):
            module.train()
            for batch in batches():
                loss = module.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
                for mean, now in zip(self.average.parameters(), module.parameters(), strict=True):
                    mean.detach().lerp_(now.detach(), 0.5)
            schedule.step()
            self.validate(module)
        return copy.deepcopy([part.state_dict() for part in (module, optimizer, schedule)]), torch.get_rng_state()

    @torch.no_grad()
    def validate(self, module):
        module.eval()
        return torch.stack([module.validation_step(batch) for batch in batches(2)]).mean()


@pytest.mark.filterwarnings("ignore:.*saw no data yet")  # of the sanity check
def test_a_lightning_like_trainer_trains_saves_goes_on_and_the_result_runs(tmp_path):
    whole, stopped, resumed, trainer = Module(), Module(), Module(), Trainer()
    trainer.fit(whole, epochs=4)

    kept = trainer.fit(stopped, epochs=2)
    trainer.fit(resumed, epochs=2, checkpoint=kept)

    for (name, one), (_, other) in zip(whole.state_dict().items(), resumed.state_dict().items(), strict=True):
        assert torch.equal(one, other), name
    program = quaver.convert(resumed.net)
    file = quaver.export(program, tmp_path / "model")
    assert quaver.verify(program, file, batches(2)).passed


class Classifier(nn.Module):
    """What a model of Hugging Face looks like: named inputs, a dict out, the loss inside."""

    def __init__(self):
        super().__init__()
        self.backbone = Tiny()

    def forward(self, pixel_values, labels=None):
        logits = self.backbone(pixel_values)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def test_a_hugging_face_like_trainer_calls_by_name_and_takes_the_loss_from_the_output(tmp_path):
    torch.manual_seed(0)
    quanter = quaver.QAT()
    wrapped = nn.DataParallel(quanter.quantize(Classifier()))  # in a wrapper, as accelerate has it
    optimizer = torch.optim.AdamW(wrapped.parameters(), 1e-2)

    losses = []
    for _ in range(3):
        for images, labels in batches():
            output = wrapped(pixel_values=images, labels=labels)
            optimizer.zero_grad()
            output["loss"].backward()
            optimizer.step()
            losses.append(output["loss"].item())

    assert sum(losses[-4:]) < sum(losses[:4])
    program = quanter.convert(wrapped.module.eval(), quaver.InputSpec([None, 3, 8, 8], "float32", "pixel_values"))
    run = quaver.runtime.load(quaver.export(program, tmp_path / "model"))
    images, _ = next(batches())
    with torch.no_grad():
        assert np.array_equal(run(images.numpy()), program(images)["logits"].numpy())
