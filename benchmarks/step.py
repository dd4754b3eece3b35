"""What does a QAT step cost over a float step?

    python benchmarks/step.py                       CPU, eager and compiled
    python benchmarks/step.py --device cuda         bf16 autocast, compiled, with peak memory

Both models train in one process and take turns; medians. A step is forward, loss, backward and SGD with momentum.
"""

import copy
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measure import Rows, arguments, interleaved, report
from torch import nn

import quaver
from quaver.models import mobilenet_v1, mobilenet_v2, resnet18

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
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    job()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(name: str, mode: str, options: object) -> dict[str, object]:
    device = torch.device(options.device)
    torch._dynamo.reset()
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, options.size, options.size, device=device)
    labels = torch.randint(0, 1000, (options.batch,), device=device)
    base = MODELS[name]().to(device)
    if device.type == "cuda":
        base, images = base.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    models = {"float": base, "qat": quaver.quant_aware(copy.deepcopy(base), example_inputs=(images[:2],)).train()}
    runs = {key: torch.compile(model) if mode == "compiled" else model for key, model in models.items()}
    if mode == "compiled" and device.type == "cuda":  # the float model as most people train it
        runs["float"] = min((models["float"], runs["float"]), key=lambda run: quick(models["float"], run, images, labels))
    jobs = {key: step(model, runs[key], images, labels) for key, model in models.items()}
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    times = interleaved(jobs, options.rounds, 5, sync)
    row: dict[str, object] = {"model": name, "mode": mode, "float ms": times["float"] * 1e3, "qat ms": times["qat"] * 1e3}
    row["qat / float"] = times["qat"] / times["float"]
    if device.type == "cuda":
        memory = {key: peak_memory(job) for key, job in jobs.items()}
        row |= {"float MiB": memory["float"], "qat MiB": memory["qat"], "memory": memory["qat"] / memory["float"]}
    return row


def quick(model: nn.Module, run: Callable[..., torch.Tensor], images: torch.Tensor, labels: torch.Tensor) -> float:
    """Seconds for a step, to choose the better float baseline."""
    return interleaved({"step": step(model, run, images, labels)}, 10, 5, torch.cuda.synchronize)["step"]


def main() -> None:
    defaults = {"batch": 16, "size": 128, "rounds": 15, "models": "mobilenet_v1,resnet18", "modes": "eager,compiled"}
    options = arguments(__doc__, device="cpu", **defaults)
    names, modes = options.models.split(","), options.modes.split(",")
    rows: Rows = [measure(name, mode, options) for name in names for mode in modes]
    where = f"{options.device}, batch {options.batch}, {options.size} x {options.size}"
    report(f"QAT step over float step, {where}", rows, options.json)


if __name__ == "__main__":
    main()
