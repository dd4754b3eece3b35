"""What does int8 cost in accuracy? Float, simulated and deployed top-1 on CIFAR-10.

    python benchmarks/accuracy.py --data-dir DIR --out OUT                         everything, where there is an engine
    python benchmarks/accuracy.py --data-dir DIR --out OUT --jobs 7 --epochs 40    train on an accelerator, in parallel
    python benchmarks/accuracy.py --data-dir DIR --out OUT --only deploy           the engine's part, on another machine

DIR holds cifar-10-batches-bin. For each model: float training, then quantization-aware training for a fifth of the epochs
from those weights; OUT/MODEL gets the float weights, the int8 program, a log line for every epoch, and the figures.
``--only full_range`` trains without ``saturation_safe``, into OUT/MODEL/full_range; ``--only qat --target onnx`` for another
engine, into OUT/MODEL/int8_onnx; `faithful.py` holds all of them against their engines.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import quaver
from cifar import Images, accuracy, test_set, train, training_set
from measure import arguments, report
from quaver import models

warnings.filterwarnings("ignore", module="torch")

# The largest learning rate that each trains well with, in batches of 256.
MODELS = {
    "mobilenet_v1": 0.2,
    "mobilenet_v2": 0.1,
    "mobilenet_v3_small": 0.1,
    "resnet20": 0.2,
    "resnet56": 0.2,
    "vgg16_bn": 0.1,
    "googlenet": 0.1,
}
QAT_LR = 0.02


class Run:
    """One model's folder, its log and its figures, which grow stage by stage."""

    def __init__(self, name: str, options: Namespace) -> None:
        self.name, self.options = name, options
        self.folder = Path(options.out) / name
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def figures(self) -> dict[str, Any]:
        """What is known so far."""
        found: dict[str, Any] = {"model": self.name}
        for file in self.folder.glob("*.json"):
            found |= json.loads(file.read_text())
        return found

    def note(self, stage: str, **figures: Any) -> None:
        """Write the figures of a stage, and print them."""
        (self.folder / f"{stage}.json").write_text(json.dumps(figures) + "\n")
        print(self.name, figures, flush=True)

    def log(self, stage: str) -> Any:
        """A function that writes a line for every epoch of a stage."""

        def line(epoch: int, loss: float, seconds: float) -> None:
            record = {"stage": stage, "epoch": epoch, "loss": round(loss, 4), "seconds": round(seconds, 1)}
            with (self.folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")

        return line

    def model(self) -> torch.nn.Module:
        """The model as it starts."""
        torch.manual_seed(self.options.seed)
        model = models.build(self.name, num_classes=10, image_size=32)
        return model.to(self.options.device, memory_format=torch.channels_last)


def train_float(run: Run, data: Images, test: Images) -> None:
    start, model = time.time(), run.model()
    train(model, data, run.options.epochs, MODELS[run.name], on_epoch=run.log("float"))
    save_file({key: value.cpu().contiguous() for key, value in model.state_dict().items()}, run.folder / "float.safetensors")
    run.note("float", epochs=run.options.epochs, float=accuracy(model, test), float_seconds=round(time.time() - start))


def train_int8(run: Run, data: Images, test: Images, *, safe: bool = True) -> None:
    start, model = time.time(), run.model()
    model.load_state_dict(load_file(run.folder / "float.safetensors", device=str(run.options.device)))
    epochs = run.options.qat_epochs or max(1, run.options.epochs // 5)
    example = data[0][:2].contiguous(memory_format=torch.channels_last)
    config = {"saturation_safe": safe, "target": run.options.target}
    qat = quaver.quant_aware(model, config, example_inputs=(example,))
    kind = ("int8" if safe else "full_range") + ("" if run.options.target == "openvino" else f"_{run.options.target}")
    train(qat, data, epochs, QAT_LR, warm_up=0.05, on_epoch=run.log(kind))
    _, int8 = quaver.convert(qat, save_int8=True)
    quaver.save(int8.to("cpu"), run.folder / kind)
    run.note(kind, **{f"{kind}_epochs": epochs, kind: accuracy(qat, test), f"{kind}_seconds": round(time.time() - start)})


def deploy(run: Run, test: Images) -> None:
    """Export to OpenVINO, and all test images through it and through the simulation."""
    program = quaver.load(run.folder / "int8")
    with tempfile.TemporaryDirectory() as out:
        artefact = quaver.export(program, out, target="openvino")
        result = quaver.verify(program, artefact, zip(test[0].split(250), test[1].split(250), strict=True), layers=False)
    assert result.accuracy_deployed is not None
    run.note("deployed", deployed=100 * result.accuracy_deployed, agreement=100 * result.agreement)


def stages(run: Run) -> None:
    options = run.options
    device = torch.device(options.device)
    wanted = options.only.split(",")
    test = tuple(tensor.to(device) for tensor in test_set(Path(options.data_dir)))
    if {"float", "qat", "full_range"} & set(wanted):
        data = tuple(tensor[: options.images].to(device) for tensor in training_set(Path(options.data_dir)))
        if "float" in wanted:
            train_float(run, data, test)
        if "qat" in wanted:
            train_int8(run, data, test)
        if "full_range" in wanted:
            train_int8(run, data, test, safe=False)
    if "deploy" in wanted:
        deploy(run, tuple(tensor.cpu() for tensor in test))


def in_parallel(names: list[str], options: Namespace) -> None:
    """Every model in a process of its own, some at a time."""
    waiting, running = list(names), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            command = [sys.executable, __file__, *sys.argv[1:], "--models", waiting.pop(0), "--jobs", "1"]
            running.append(subprocess.Popen(command))
        running = [process for process in running if process.poll() is None]
        time.sleep(0.2)


def table(names: list[str], options: Namespace) -> None:
    keys = ("model", "float", "int8", "deployed", "agreement", "full_range", "epochs", "int8_epochs")
    rows = []
    for name in names:
        figures = Run(name, options).figures
        row = {key: figures.get(key, "") for key in keys}
        row["drop"] = figures["float"] - figures.get("deployed", figures["int8"]) if "int8" in figures else ""
        rows.append(row)
    report("Top-1 on CIFAR-10", rows, options.json)


def main() -> None:
    options = arguments(
        __doc__,
        data_dir="",
        out="",
        device="cuda" if torch.cuda.is_available() else "cpu",
        models=",".join(MODELS),
        only="float,qat,deploy",
        target="openvino",
        epochs=40,
        qat_epochs=0,
        images=50000,
        seed=0,
        jobs=1,
    )
    names = options.models.split(",")
    if options.jobs > 1:
        in_parallel(names, options)
    else:
        for name in names:
            stages(Run(name, options))
    if options.jobs > 1 or len(names) > 1:
        table(names, options)


if __name__ == "__main__":
    main()
