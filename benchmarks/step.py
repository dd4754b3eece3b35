"""What does a QAT step cost over a float step?

    python benchmarks/step.py                       CPU, eager and compiled
    python benchmarks/step.py --device cuda --batch 256 --size 224 --modes compiled,graphs     bf16 autocast, peak memory

Both models train in one process and take turns; medians. A step is forward, loss, backward and SGD with momentum. On an
accelerator a turn is ten steps, as a training loop runs them: the next one is prepared while the last one computes.
``graphs`` is compiled and replayed as CUDA graphs, both models.
"""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import quaver
from measure import Rows, arguments, interleaved, report
from quaver.models import mobilenet_v1, mobilenet_v2, resnet18
from quaver.training import compile_training

warnings.filterwarnings("ignore", module="torch")

MODELS = {"mobilenet_v1": mobilenet_v1, "mobilenet_v2": mobilenet_v2, "resnet18": resnet18}


def step(
    model: nn.Module, run: Callable[..., torch.Tensor], images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def job() -> None:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.device.type == "cuda"):
            loss = F.cross_entropy(run(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return job


def peak_memory(job: Callable[[], None]) -> float:
    """MiB that a step needs at its peak, weights and optimizer state of this model included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    job()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


def make(name: str, kind: str, options: object) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, float or quantized, and a batch for it."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, options.size, options.size, device=device)
    labels = torch.randint(0, 1000, (options.batch,), device=device)
    model = MODELS[name]().to(device)
    if device.type == "cuda":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    return (model if kind == "float" else quaver.quant_aware(model, example_inputs=(images[:2],)).train()), images, labels


def prepared(model: nn.Module, kind: str, mode: str) -> Callable[..., torch.Tensor]:
    """The model as it is trained in a mode; the float model with the compiler's own settings, ours with ours."""
    if mode == "eager":
        return model
    if kind == "float":
        return torch.compile(model, mode="reduce-overhead" if mode == "graphs" else "default")
    return compile_training(model, cuda_graphs=mode == "graphs")


def several(job: Callable[[], None], times: int) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(times):
            job()

    return turn


def measure(name: str, mode: str, options: object) -> dict[str, object]:
    """One row: a model's steps, float and quantized, taking turns; each alone on the accelerator for its memory."""
    cuda = options.device == "cuda"
    torch._dynamo.reset()
    jobs, memory, resident = {}, {}, 0.0
    for kind in ("float", "qat"):
        model, images, labels = make(name, kind, options)
        jobs[kind] = step(model, prepared(model, kind, mode), images, labels)
        if cuda:
            for _ in range(4):
                jobs[kind]()
            memory[kind] = peak_memory(jobs[kind]) - resident
            resident = torch.cuda.memory_allocated() / 2**20  # the float model stays while the other is measured
    steps = 10 if cuda else 1
    turns = {kind: several(job, steps) for kind, job in jobs.items()}
    turn = interleaved(turns, options.rounds, 5 if steps == 1 else 1, torch.cuda.synchronize if cuda else (lambda: None))
    times = {kind: seconds / steps for kind, seconds in turn.items()}
    row: dict[str, object] = {"model": name, "mode": mode, "float ms": times["float"] * 1e3, "qat ms": times["qat"] * 1e3}
    row["qat / float"] = times["qat"] / times["float"]
    if cuda:
        row |= {"float MiB": memory["float"], "qat MiB": memory["qat"], "memory": memory["qat"] / memory["float"]}
    return row


def main() -> None:
    defaults = {"batch": 16, "size": 128, "rounds": 15, "models": "mobilenet_v1,resnet18", "modes": "eager,compiled"}
    options = arguments(__doc__, device="cpu", **defaults)
    names, modes = options.models.split(","), options.modes.split(",")
    rows: Rows = []
    for name in names:
        for mode in modes:
            rows.append(measure(name, mode, options))
            print(rows[-1], flush=True)
    where = f"{options.device}, batch {options.batch}, {options.size} x {options.size}"
    report(f"QAT step over float step, {where}", rows, options.json)


if __name__ == "__main__":
    main()
