"""What each of two processes does in ``tests/training/test_many_processes.py``, and what one does alone.

python two_processes.py FOLDER        with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import quaver
from quaver.data import Loader, open_dataset
from quaver.quantizers import LearnedStep
from quaver.training.across_ranks import across_ranks
from quaver.training.checkpoint import Checkpoints
from quaver.training.classification import Classification
from quaver.training.ranks import Ranks, join
from quaver.training.trainer import Trainer
from tiny import Noise, tiny_job


class Residual(nn.Module):
    """Convolutions, batch norms, an addition; nothing random, so that sharing a batch can give the same result."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.body(x) + x)
        return self.head(x.mean((2, 3)))


class Shared(Noise):
    """A process's part of each batch."""

    def __init__(self, ranks, **options):
        super().__init__(**options)
        self.ranks = ranks

    def epoch(self, k, start=0):
        for images, labels in super().epoch(k, start):
            part = slice(self.ranks.rank, None) if self.ranks.world == 1 else slice(*self._ends(len(labels)))
            yield images[part], labels[part]

    def _ends(self, size):
        share = size // self.ranks.world
        return self.ranks.rank * share, (self.ranks.rank + 1) * share


def program(**config):
    torch.manual_seed(0)
    return quaver.quant_aware(Residual(), config, example_inputs=(torch.zeros(1, 3, 8, 8),))


def job(ranks, config=None, **options):
    shared = {"batches": Shared(ranks, size=16), "test": Shared(ranks, size=16), "lr": 0.05}
    made = tiny_job(program(**(config or {})), **(shared | options))
    return replace(made, ranks=ranks, task=Classification(ranks=ranks))


def trained(ranks, **options):
    """The state after training, and the figures of the test set under ``figures``."""
    one = job(ranks, **options)
    figures = Trainer(one).run()
    return dict(one.program.state_dict()) | {"figures": torch.tensor([figures["top1"], figures["images"]])}


RUNS = {
    "one_step": {"num_epochs": 1, "batches_": 1},
    "two_epochs": {"num_epochs": 2},
    "frozen": {"num_epochs": 2, "freeze_bn_epoch": 1, "freeze_observers_epoch": 1, "ema": 0.9, "reestimate_bn": 2},
    "range_abs_max": {"num_epochs": 1, "batches_": 1, "config": {"activation_quantize_type": "range_abs_max"}},
    "abs_max": {"num_epochs": 1, "batches_": 1, "config": {"activation_quantize_type": "abs_max"}},
    "learned_step": {"num_epochs": 2, "config": {"activation_quantize_type": "learned_step"}},
}


def results(ranks):
    """Every run's result, by name."""
    found = {}
    for name, options in RUNS.items():
        options = dict(options)
        length = options.pop("batches_", 4)
        found[name] = trained(ranks, batches=Shared(ranks, size=16, batches=length), **options)
    return found


def started(ranks):
    """Steps that a first batch started."""
    whole = program(activation_quantize_type="learned_step")
    twin = across_ranks(whole) if ranks.world > 1 else whole
    ((images, _),) = Shared(ranks, size=16, batches=1).epoch(0)
    twin.train()(images)
    return dict(whole.state_dict())


def synced_modules(ranks):
    """Batch-norm statistics after a batch, of a float program whose batch norms torch replaced; one of them is frozen."""
    torch.manual_seed(0)
    whole = nn.SyncBatchNorm.convert_sync_batchnorm(quaver.capture(Residual(), (torch.zeros(1, 3, 8, 8),)))
    whole.train().body[1].eval()
    ((images, _),) = Shared(ranks, size=16, batches=1).epoch(0)
    whole(images)
    return {name: tensor for name, tensor in whole.state_dict().items() if "running" in name or "tracked" in name}


def started_by_one(ranks):
    """A learned step that only the first process has anything to start from: the second has NaN, then no images."""
    quantizer = LearnedStep(narrow=False)
    quantizer.synced = ranks.world > 1
    quantizer(torch.full((4,), torch.nan if ranks.rank else 1.0))
    after_nan = quantizer.step.detach().clone()
    quantizer(torch.zeros(0) if ranks.rank else torch.tensor([1.0, -2.0, 3.0]))
    return {"after_nan": after_nan, "step": quantizer.step.detach(), "nonfinite": quantizer.nonfinite}


def nan_in_one(ranks):
    """Ranges after a batch of which only the second process's part holds NaN."""
    whole = program()
    twin = across_ranks(whole).train()
    (good, _), (bad, _) = Shared(ranks, size=16, batches=2).epoch(0)
    twin(good)
    before = {f"before.{name}": tensor.clone() for name, tensor in whole.state_dict().items()}
    twin(bad * float("nan") if ranks.rank else bad)
    return before | {f"after.{name}": tensor for name, tensor in whole.state_dict().items()}


def resumed(ranks, folder):
    """The result of a run that goes on from its checkpoint in the middle."""
    checkpoints = Checkpoints(folder / "checkpoints")
    first = job(ranks, num_epochs=2, checkpoints=checkpoints)
    Trainer(replace(first, phase=replace(first.phase, num_epochs=1, lr_strategy="constant"))).run()
    again = job(ranks, num_epochs=2, checkpoints=checkpoints, lr_strategy="constant")
    Trainer(again).run(ranks.from_first(checkpoints.newest(print) if ranks.first else None))
    return dict(again.program.state_dict())


def counted(ranks):
    """How many test images each process reads, and how many are counted."""
    loader = Loader(open_dataset("digits", "val", image_size=8), 50, shuffle=False, rank=ranks.rank, world=ranks.world)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    nn.init.constant_(model[1].weight, 0.01)
    nn.init.constant_(model[1].bias, 0.1)
    own = sum(len(labels) for _, labels in loader.epoch(0))
    figures = Classification(ranks=ranks).evaluate(model, loader)
    return {"own": torch.tensor(own), "figures": torch.tensor([figures["top1"], figures["loss"], figures["images"]])}


def fall_over(ranks):
    """The second process dies in its third step, while the first waits for it."""
    plain, steps = torch.optim.SGD.step, []

    def step(self, *args, **kwargs):
        steps.append(1)
        if ranks.rank == 1 and len(steps) == 3:
            raise RuntimeError("rank 1 fell over")
        return plain(self, *args, **kwargs)

    torch.optim.SGD.step = step
    trained(ranks, num_epochs=9)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = join(accelerator=False)
    found = results(ranks)
    found["nan"] = nan_in_one(ranks)
    found["started"] = started(ranks)
    found["synced_modules"] = synced_modules(ranks)
    found["started_by_one"] = started_by_one(ranks)
    found["resumed"] = resumed(ranks, folder)
    found["straight"] = trained(ranks, num_epochs=2, lr_strategy="constant")
    found["counted"] = counted(ranks)
    flat = {f"{run}/{name}": tensor.contiguous().clone() for run, state in found.items() for name, tensor in state.items()}
    save_file(flat, folder / f"rank{ranks.rank}.safetensors")
    fall_over(ranks)


def alone() -> dict[str, dict[str, torch.Tensor]]:
    """The same by one process with the whole batch."""
    others = {"counted": counted, "started": started, "synced_modules": synced_modules}
    return results(Ranks()) | {name: run(Ranks()) for name, run in others.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
