"""What the accuracy benchmarks share: CIFAR-10 in the accelerator's memory, training on it, variants in parallel."""

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import quaver
from quaver.engines import ENGINES
from quaver.export import form_for
from quaver.models import build
from quaver.training.classification import Classification

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PADDING = 4
TEMPERATURE = 2.0  # of a teacher's outputs
# What every one of them can be told.
OPTIONS: dict[str, Any] = {
    "data_dir": "",
    "out": "",
    "device": "cuda" if torch.cuda.is_available() else "cpu",
    "images": 50000,
    "test_images": 10000,
    "seed": 0,
    "jobs": 1,
    "bf16": int(torch.cuda.is_available()),
}
Images = tuple[Tensor, Tensor]


def cifar10(folder: Path, files: list[str]) -> Images:
    """Images, normalized, and labels of the binary layout."""
    raw = np.concatenate([np.fromfile(folder / "cifar-10-batches-bin" / name, np.uint8) for name in files]).reshape(-1, 3073)
    images = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).copy()).float().div(255)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std, torch.from_numpy(raw[:, 0].astype(np.int64))


def training_set(folder: Path, files: int = 5) -> Images:
    return cifar10(folder, [f"data_batch_{k}.bin" for k in range(1, files + 1)])


def test_set(folder: Path) -> Images:
    return cifar10(folder, ["test_batch.bin"])


def both_sets(options: Namespace) -> tuple[Images, Images]:
    """Training and test set, as many images as wanted, on the device."""
    folder, device = Path(options.data_dir), options.device
    needed = min(5, -(-options.images // 10000))  # files of 10,000 images
    images, labels = (tensor[: options.images].to(device) for tensor in training_set(folder, needed))
    test_images, test_labels = (tensor[: options.test_images].to(device) for tensor in test_set(folder))
    return (images, labels), (test_images, test_labels)


def zoo_model(name: str, options: Namespace) -> nn.Module:
    """A model of the zoo as it starts, or a transformer of torchvision's for small images."""
    torch.manual_seed(options.seed)
    model = TRANSFORMERS[name]() if name in TRANSFORMERS else build(name, num_classes=10, image_size=32)
    return model.to(options.device, memory_format=torch.channels_last)


def vit_tiny() -> nn.Module:
    """ViT-Tiny on patches of 4 pixels."""
    from torchvision.models import VisionTransformer

    sizes = {"num_layers": 12, "num_heads": 3, "hidden_dim": 192, "mlp_dim": 768}
    return VisionTransformer(image_size=32, patch_size=4, num_classes=10, **sizes)  # type: ignore[no-any-return]


def swin_tiny() -> nn.Module:
    """Swin-Tiny on patches of 2 pixels, with windows of 4."""
    from torchvision.models import SwinTransformer

    sizes = {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": [4, 4]}
    return SwinTransformer(patch_size=[2, 2], stochastic_depth_prob=0.1, num_classes=10, **sizes)  # type: ignore[no-any-return]


TRANSFORMERS: dict[str, Callable[[], nn.Module]] = {"vit_tiny": vit_tiny, "swin_tiny": swin_tiny}
"""They are trained by AdamW."""


def save_weights(model: nn.Module, file: Path) -> None:
    save_file({key: value.cpu().contiguous() for key, value in model.state_dict().items()}, file)


def load_weights(model: nn.Module, file: Path, options: Namespace) -> nn.Module:
    model.load_state_dict(load_file(file, device=str(options.device)))
    return model


def trained_model(name: str, options: Namespace, data: Images) -> nn.Module:
    """A float model with the weights of ``--float``; without, it is trained first and kept in ``--out``."""
    model, file = zoo_model(name, options), Path(options.float or Path(options.out) / "float.safetensors")
    if not file.exists():
        train(model, data, options.epochs, 0.2, bf16=options.bf16)
        save_weights(model, file)
    return load_weights(model, file, options)


def in_parallel(flag: str, values: Sequence[str], jobs: int) -> None:
    """Run this very command once for each value of a flag, each in a process of its own, some at a time."""
    waiting = list(values)
    running: list[subprocess.Popen[bytes]] = []
    failed = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen([sys.executable, *sys.argv, flag, waiting.pop(0), "--jobs", "1"]))
        failed += sum(bool(process.poll()) for process in running)
        running = [process for process in running if process.returncode is None]
        time.sleep(0.2)
    if failed:
        sys.exit(f"{failed} of {len(values)} failed")


def each_variant(flag: str, wanted: Sequence[str], options: Namespace, run: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Run every variant, here or in processes of their own, and read the figures that each leaves in ``--out``."""
    if options.jobs > 1:
        in_parallel(flag, wanted, options.jobs)
    else:
        for variant in wanted:
            run(variant)
    return [json.loads((Path(options.out) / f"{variant}.json").read_text()) for variant in wanted]


def leave(variant: str, figures: dict[str, Any], options: Namespace) -> None:
    """Write and print the figures of a variant."""
    (Path(options.out) / f"{variant}.json").write_text(json.dumps(figures) + "\n")
    print(json.dumps(figures), flush=True)


def batches(images: Tensor, labels: Tensor, size: int) -> Iterator[Images]:
    """One epoch, shuffled; each image shifted by up to four pixels and flipped or not."""
    device = images.device
    padded = F.pad(images, (PADDING,) * 4)
    pixels = torch.arange(32, device=device)
    for chosen in torch.randperm(len(images), device=device).split(size):
        if len(chosen) < size:
            return
        top, left = (torch.randint(0, 2 * PADDING + 1, (size, 1), device=device) for _ in range(2))
        columns = torch.where(torch.rand(size, 1, device=device) < 0.5, left + pixels, left + pixels.flip(0))
        rows = (top + pixels)[:, None, :, None]
        channels = torch.arange(3, device=device)[None, :, None, None]
        yield padded[chosen[:, None, None, None], channels, rows, columns[:, None, None, :]], labels[chosen]


def train(
    model: nn.Module,
    data: Images,
    epochs: int,
    lr: float,
    *,
    weight_decay: float = 5e-4,
    warm_up: float = 0.15,
    size: int = 256,
    adam: bool = False,
    teacher: nn.Module | None = None,
    distill: float = 0.0,
    own: Sequence[dict[str, Any]] = (),
    bf16: bool = bool(OPTIONS["bf16"]),
    steady: bool = False,
    on_epoch: Callable[[int, float, float], None] = lambda epoch, loss, seconds: None,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """SGD (or AdamW) along one cycle of the learning rate, in bf16 if wanted; biases and batch norm do not decay.

    ``own`` are parameter groups with options of their own, such as the quantizers'; their learning rate follows the same
    cycle. ``distill`` is the weight of learning from a ``teacher``'s outputs. A ``steady`` rate stays after its warm-up.
    ``on_epoch`` is told the epoch, its mean loss and its seconds.
    """
    images, labels = data
    others = {id(value) for group in own for value in group["params"]}
    values = [value for value in model.parameters() if id(value) not in others]
    matrices, vectors = ([value for value in values if (value.dim() > 1) == many] for many in (True, False))
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}, *own]
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(groups, lr) if adam else torch.optim.SGD(groups, lr, momentum=0.9, nesterov=True)
    )
    steps = epochs * (len(images) // size)
    peaks = [group["lr"] for group in optimizer.param_groups]
    schedule: torch.optim.lr_scheduler.LRScheduler = (
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=max(1, round(warm_up * steps)))
        if steady
        else torch.optim.lr_scheduler.OneCycleLR(optimizer, peaks, total_steps=steps, pct_start=warm_up, div_factor=10)
    )
    model.train()
    step = Step(model, teacher, distill, bf16=bf16)
    for epoch in range(epochs):
        start, total, seen = time.time(), torch.zeros((), device=images.device), 0
        for x, y in batches(images, labels, size):
            total += step(x, y)
            optimizer.step()
            schedule.step()
            after_step()
            seen += 1
        on_epoch(epoch, float(total / seen), time.time() - start)


class Step:
    """Forward, loss and backward of a batch: gradients in place, and the loss.

    On an accelerator these images are so small that launching a kernel takes longer than running it: after a few steps as
    they are, one is recorded as a CUDA graph, and all others replay it.
    """

    BEFORE_RECORDING = 8
    task = Classification(label_smoothing=0.05)

    def __init__(
        self, model: nn.Module, teacher: nn.Module | None = None, distill: float = 0.0, *, bf16: bool = bool(OPTIONS["bf16"])
    ) -> None:
        self.model, self.done, self.bf16 = model, 0, bool(bf16)
        self.teacher, self.distill = teacher, distill
        self.graph: torch.cuda.CUDAGraph | None = None
        self.images = self.labels = self.loss = torch.empty(0)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch, which stands until the next call."""
        if not x.is_cuda:
            return self.run(x, y)
        x = x.contiguous(memory_format=torch.channels_last)
        if self.done < self.BEFORE_RECORDING:
            self.done += 1
            return self.beside(lambda: self.run(x, y))
        if self.graph is None:
            self.record(x, y)
        self.images.copy_(x)
        self.labels.copy_(y)
        self.graph.replay()
        return self.loss

    def run(self, x: Tensor, y: Tensor) -> Tensor:
        """As it is."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            output = self.model(x)
            loss = self.task.loss(output, y)
            if self.teacher is not None:
                with torch.no_grad():
                    wise = self.teacher(x)
                loss = (1 - self.distill) * loss + self.distill * self.task.distillation(output, wise, TEMPERATURE)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach()

    def record(self, x: Tensor, y: Tensor) -> None:
        """Keep what `run` launches; nothing is computed."""
        self.images, self.labels = x.clone(memory_format=torch.channels_last), y.clone()
        self.model.zero_grad(set_to_none=True)  # so that recording gives the gradients their places
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.run(self.images, self.labels)

    @staticmethod
    def beside(job: Callable[[], Tensor]) -> Tensor:
        """On a stream of its own, as steps before a recording must be."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = job()
        torch.cuda.current_stream().wait_stream(stream)
        return result


@torch.no_grad()
def accuracy(model: nn.Module, data: Images, k: int = 1) -> float:
    """Top-k in percent, in float32."""
    model.eval()
    images, labels = data
    return top_k(torch.cat([model(x) for x in images.split(500)]), labels, k)


def top_k(outputs: Tensor, labels: Tensor, k: int) -> float:
    """How many images, in percent, have their label among the ``k`` largest outputs."""
    return 100 * float((outputs.topk(k, 1).indices == labels[:, None]).any(1).double().mean())


def deployed(program: Path, data: Images, target: str = "openvino") -> dict[str, Any]:
    """A saved int8 program on an engine: top-1 there and in simulation; images, in percent, with the same class and bits.

    Where a class differs, ``why`` says what `quaver.verify` finds on those images, tensor by tensor.
    """
    int8, engine = quaver.load(program), ENGINES[target]
    images, labels = (tensor.cpu() for tensor in data)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        artefact = quaver.export(int8, folder, target=target)
        run, form = quaver.runtime.load(artefact), form_for(int8, engine)
        simulated = torch.cat([form(x) for x in images.split(250)])
        got = torch.cat([torch.from_numpy(run(x.numpy())) for x in images.split(250)])
        others = (simulated.argmax(1) != got.argmax(1)).nonzero()[:, 0]
        why = reason(quaver.verify(int8, artefact, [images[others]], threshold=0.0)) if len(others) else ""
    return {
        "simulated": top_k(simulated, labels, 1),
        "deployed": top_k(got, labels, 1),
        "agreement": 100 * (1 - len(others) / len(images)),
        "equal": 100 * float((simulated == got).all(1).double().mean()),
        "why": why,
    }


def reason(found: quaver.Verification) -> str:
    """How images that got another class came to it."""
    moved = [layer for layer in found.layers if layer.farthest]
    farthest = max((layer.farthest for layer in moved), default=0.0)
    first = found.first_layer.name if found.first_layer else "an output"
    verdict = "passed" if found.passed else f"FAILED: {found.failures[0]}"
    return f"{found.images} images; first at {first!r}; values {farthest:.2g} steps from a tie at most; verify {verdict}"
