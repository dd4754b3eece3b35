"""What does `quaver quantize` do when training is over, and how long does each part take?

    python benchmarks/after_training.py --model mobilenet_v1

A network of the zoo for CIFAR-10, random weights and two steps: conversion, the files of the program (``write_tree``), those
of the float model, and 1,000 images on the engine held against the simulation, tensor by tensor. Engines that are not
installed write nothing. ``--engine onnxruntime`` leaves all others out, as on a machine that has no more.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import quaver
from measure import arguments, report
from quaver.deployment import write_float_model, write_tree
from quaver.engines import DEFAULT, ENGINES
from quaver.models import build

warnings.filterwarnings("ignore")
ELSEWHERE = ("openvino", "executorch", "ai_edge_litert")


def without_others() -> None:
    """Let the engines' packages look as if they were not installed, but for ONNX Runtime."""
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *more: None if name.split(".")[0] in ELSEWHERE else find(name, *more)  # type: ignore[assignment]


def seconds(parts: dict[str, Any], name: str, job: Callable[[], Any]) -> Any:
    """What a job gives; how long it took is noted under a name."""
    start = time.perf_counter()
    result = job()
    parts[name] = time.perf_counter() - start
    return result


def main() -> None:
    options = arguments(__doc__, model="mobilenet_v1", images=1000, engine="")
    assert options.engine in ("", "onnxruntime")
    if options.engine:
        without_others()
    engine = ENGINES["onnx"] if options.engine else DEFAULT
    torch.manual_seed(0)
    net, images = build(options.model, num_classes=10, image_size=32), torch.randn(8, 3, 32, 32)
    program = quaver.quant_aware(net, example_inputs=(images,)).train()
    for _ in range(2):
        program(torch.randn(8, 3, 32, 32))
    batches = [torch.randn(250, 3, 32, 32) for _ in range(options.images // 250)]
    row: dict[str, Any] = {"model": options.model}
    with TemporaryDirectory() as place:
        folder = Path(place)
        frozen, int8 = seconds(row, "conversion s", lambda: quaver.convert(program.eval(), save_int8=True))
        seconds(row, "files s", lambda: write_tree(frozen, folder, left_out=lambda message: None))
        captured = seconds(row, "float captured s", lambda: quaver.capture(net.eval(), (images,)))
        seconds(row, "float files s", lambda: write_float_model(captured, folder, engine, left_out=lambda message: None))
        seconds(row, "comparison s", lambda: quaver.verify(int8, engine.file_in(folder), batches))
    report("After training", [row], options.json)


if __name__ == "__main__":
    main()
