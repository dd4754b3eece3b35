"""What does the statistics pass of ``quaver.analyze`` cost beside a plain evaluation pass over the same batches?

    python benchmarks/analysis.py [--batches 4] [--batch 32] [--rounds 5] [--threads 1] [--json FILE]

Float and prepared programs of the zoo; the two passes take turns. Wanted: at most 1.5 times. Memory is the largest
resident size after the pass above that after plain evaluation, which must not grow with the number of batches.
"""

import resource
import warnings

import torch

import quaver
from measure import Rows, arguments, interleaved, report
from quaver.models import mobilenet_v1, mobilenet_v2, resnet50
from quaver.program import Program

warnings.filterwarnings("ignore", module="torch")
NETS = {
    "mobilenet_v1 224": (lambda: mobilenet_v1(), 224),
    "mobilenet_v2 224": (lambda: mobilenet_v2(), 224),
    "resnet50 224": (lambda: resnet50(), 224),
    "mobilenet_v1 32": (lambda: mobilenet_v1(num_classes=10, small_images=True), 32),
}


def programs(name: str, batch: torch.Tensor) -> dict[str, Program]:
    """The net as a float program, and prepared with ranges."""
    torch.manual_seed(0)
    model = NETS[name][0]()
    prepared = quaver.quant_aware(model, example_inputs=(batch[:2],)).train()
    prepared(batch[:2])
    return {"float": quaver.capture(model, (batch[:2],)).eval(), "prepared": prepared.eval()}


@torch.no_grad()
def evaluate(program: Program, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Top-1, as anyone evaluates."""
    hits = sum(int((program(images).argmax(1) == labels).sum()) for images, labels in batches)
    return hits / sum(len(labels) for _, labels in batches)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    options = arguments(__doc__, batches=4, batch=32, rounds=5, threads=1, nets=",".join(NETS), device="cpu")
    torch.set_num_threads(options.threads)
    rows: Rows = []
    for name in options.nets.split(","):
        size = NETS[name][1]
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(options.batches * options.batch, 3, size, size, generator=generator).to(options.device)
        labels = torch.zeros(len(images), dtype=torch.int64, device=options.device)
        batches = list(zip(images.split(options.batch), labels.split(options.batch), strict=True))
        for stage, program in programs(name, images.cpu()).items():
            program.to(options.device)
            evaluate(program, batches[:1])
            before = peak()
            quaver.analyze(program, batches[:1])
            after_one = peak()
            jobs = {
                "evaluate": lambda program=program, batches=batches: evaluate(program, batches),
                "analyze": lambda program=program, batches=batches: quaver.analyze(program, batches),
            }
            sync = torch.cuda.synchronize if options.device == "cuda" else lambda: None
            taken = interleaved(jobs, options.rounds, warmup=1, sync=sync)
            rows.append(
                {
                    "net": name,
                    "program": stage,
                    "evaluate s": taken["evaluate"],
                    "analyze s": taken["analyze"],
                    "ratio": taken["analyze"] / taken["evaluate"],
                    "memory MiB": after_one - before,
                    "more, later": peak() - after_one,
                }
            )
            print(rows[-1], flush=True)
    report(f"quaver.analyze over {options.batches} batches of {options.batch}", rows, options.json)


if __name__ == "__main__":
    main()
