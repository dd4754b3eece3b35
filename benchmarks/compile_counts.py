"""How much ``torch.compile`` makes of a model on a processor: graphs, kernels and lines of C++, on a busy machine, too.

Kernels are counted as they are handed to the C++ compiler, and not compiled.

    python benchmarks/compile_counts.py mobilenet_v1 scale=0.25
"""

import argparse
from typing import Any

import torch
import torch._dynamo
from torch._inductor.async_compile import AsyncCompile

import quaver
from quaver.models import build
from quaver.training import compile_training


def counts(program: quaver.Program, images: torch.Tensor, *, train: bool) -> dict[str, int]:
    """What the compiler makes of a step, or of an evaluation."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    sources: list[str] = []

    def keep(self: AsyncCompile, argtypes: list[str], source: str, **options: Any) -> Any:
        sources.append(source)
        return lambda *args: None

    compiled, AsyncCompile.cpp_pybinding = AsyncCompile.cpp_pybinding, keep
    try:
        if train:
            compile_training(program.train())(images).sum().backward()
        else:
            with torch.no_grad():
                torch.compile(program.eval())(images)
    finally:
        AsyncCompile.cpp_pybinding = compiled
    lines = [source.count("\n") for source in sources]
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {"graphs": graphs, "kernels": len(lines), "lines": sum(lines), "lines of the largest": max(lines)}


def main() -> None:
    """Float and with quantizers, in training and in evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("options", nargs="*", help="of the model: scale=0.25")
    arguments = parser.parse_args()
    options = {name: float(value) for name, value in (option.split("=") for option in arguments.options)}
    images = torch.randn(8, 3, 32, 32)
    for title in ("float", "with quantizers"):
        program = quaver.capture(build(arguments.model, num_classes=10, image_size=32, **options), (images,))
        if title != "float":
            program = quaver.quant_aware(program)
            program.train()(images)
        for train in (True, False):
            print(title, "training" if train else "evaluation", counts(program, images, train=train))


if __name__ == "__main__":
    torch._inductor.config.force_disable_caches = True
    main()
