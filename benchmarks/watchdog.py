"""What does the watchdog cost? A QAT step, a look, and the sum it keeps of the losses, on one thread.

python benchmarks/watchdog.py [--period 100]
"""

import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F

import quaver
from measure import arguments, report
from quaver.models import mobilenet_v1, resnet18
from quaver.training.watchdog import Watchdog

warnings.filterwarnings("ignore", module="torch")

MODELS = {"mobilenet_v1": mobilenet_v1, "resnet18": resnet18}


def seconds(job: Callable[[], object], times: int, rounds: int = 3) -> float:
    """Processor time of a job, the least of some rounds: other people's work does not count."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            job()
        found.append((time.process_time() - start) / times)
    return min(found)


def measure(name: str, batch: int, period: int) -> dict[str, object]:
    torch.manual_seed(0)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    program = quaver.quant_aware(MODELS[name](10, small_images=True), example_inputs=(images,)).train()
    optimizer = torch.optim.SGD(program.parameters(), lr=1e-3, momentum=0.9)

    def step() -> torch.Tensor:
        loss = F.cross_entropy(program(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    loss, dog = step(), Watchdog(program)
    dog.look(images)
    times = {
        "step": seconds(step, 1),
        "look": seconds(lambda: dog.look(images), 1),
        "note": seconds(lambda: dog.note(loss), 999),
    }
    row: dict[str, object] = {"model": name, "batch": batch} | {f"{key} ms": value * 1e3 for key, value in times.items()}
    return row | {"share of a step, %": 100 * (times["look"] / period + times["note"]) / times["step"]}


def main() -> None:
    options = arguments(__doc__, batch=32, period=100, models=",".join(MODELS))
    torch.set_num_threads(1)
    rows = [measure(name, options.batch, options.period) for name in options.models.split(",")]
    report(f"The watchdog, a look every {options.period} steps", rows, options.json)


if __name__ == "__main__":
    main()
