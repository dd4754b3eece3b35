"""Train the models that `faithful.py` deploys: float, then int8-aware, on CIFAR-10. Meant for an accelerator.

    python benchmarks/cifar_models.py --data-dir DIR --out DIR          DIR holds cifar-10-batches-bin

For each model: some epochs in float, then some with quantizers, once with ``saturation_safe`` and once without, from
the same float weights. Writes the frozen programs (int8 storage) and the accuracies of float and simulation.
"""

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import quaver
from measure import arguments
from quaver.models import mobilenet_v1, mobilenet_v2, resnet18

warnings.filterwarnings("ignore", module="torch")

MODELS = {
    "mobilenet_v1": lambda: mobilenet_v1(10, 0.5, small_images=True),
    "mobilenet_v2": lambda: mobilenet_v2(10, 1.0, small_images=True),
    "resnet18": lambda: resnet18(10, small_images=True),
}
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def cifar10(folder: Path, files: list[str]) -> tuple[Tensor, Tensor]:
    """Images, normalized, and labels of the binary layout."""
    raw = np.concatenate([np.fromfile(folder / "cifar-10-batches-bin" / name, np.uint8) for name in files]).reshape(-1, 3073)
    images = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).copy()).float().div(255)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std, torch.from_numpy(raw[:, 0].astype(np.int64))


def training_set(folder: Path) -> tuple[Tensor, Tensor]:
    return cifar10(folder, [f"data_batch_{k}.bin" for k in range(1, 6)])


def test_set(folder: Path) -> tuple[Tensor, Tensor]:
    return cifar10(folder, ["test_batch.bin"])


def batches(images: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch, shuffled, each batch flipped and shifted as a whole: cheap, and enough here."""
    order = torch.randperm(len(images), device=images.device)
    padded = F.pad(images, (4, 4, 4, 4))
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        top, left = torch.randint(0, 9, (2,)).tolist()
        picked = padded[chosen, :, top : top + 32, left : left + 32]
        flip = torch.rand(size, 1, 1, 1, device=images.device) < 0.5
        yield torch.where(flip, picked.flip(3), picked), labels[chosen]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float, size: int = 256) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * (len(images) // size), pct_start=0.2)
    model.train()
    for _ in range(epochs):
        for x, y in batches(images, labels, size):
            with torch.autocast(images.device.type, torch.bfloat16, enabled=images.device.type == "cuda"):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    hits = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True))
    return 100 * hits / len(labels)


def main() -> None:
    options = arguments(
        __doc__, data_dir="", out="", device="cuda", models=",".join(MODELS), epochs=12, qat_epochs=3, images=50000
    )
    device, folder = torch.device(options.device), Path(options.data_dir)
    images, labels = (tensor[: options.images].to(device) for tensor in training_set(folder))
    test = tuple(tensor.to(device) for tensor in test_set(folder))
    for name in options.models.split(","):
        start = time.time()
        torch.manual_seed(0)
        model = MODELS[name]().to(device)
        train(model, images, labels, options.epochs, 0.2 if name != "mobilenet_v2" else 0.1)
        row = {"model": name, "float": accuracy(model, *test)}
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        for safe in (True, False):
            model.load_state_dict(weights)
            qat = quaver.quant_aware(model, {"saturation_safe": safe}, example_inputs=(images[:2],))
            train(qat, images, labels, options.qat_epochs, 0.01)
            row["saturation safe" if safe else "full range"] = accuracy(qat, *test)
            int8 = quaver.convert(qat, save_int8=True)[1].to("cpu")
            quaver.save(int8, Path(options.out) / f"{name}{'' if safe else '_full_range'}")
        print(json.dumps(row | {"seconds": round(time.time() - start)}), flush=True)
        (Path(options.out) / f"{name}.json").write_text(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
