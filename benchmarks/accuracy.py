"""What does int8 cost in accuracy? Float, simulated and deployed top-1 on CIFAR-10.

    python benchmarks/accuracy.py --data-dir DIR --out OUT                         everything, where there is an engine
    python benchmarks/accuracy.py --data-dir DIR --out OUT --jobs 7 --epochs 40    train on an accelerator, in parallel
    python benchmarks/accuracy.py --data-dir DIR --out OUT --only deploy           the engine's part, on another machine

DIR holds cifar-10-batches-bin. For each model: float training, then quantization-aware training for a fifth of the epochs
from those weights; OUT/MODEL gets the float weights, the int8 program, a log line for every epoch, and the figures.
``--only full_range`` trains without ``saturation_safe``, into OUT/MODEL/full_range (several seeds: `saturation_safe.py`);
``--only qat --target onnx`` for another engine, into OUT/MODEL/int8_onnx; `faithful.py` holds them against their engines.

    python benchmarks/accuracy.py --data-dir DIR --out OUT --only qat,deploy --calibrate 256 --qat-epochs 1 --images 5000
        --bf16 1 --missing 1 --target openvino,onnx,executorch,litert,tensorrt

From float weights in OUT, for each of several engines: ranges of 256 images, an epoch of 5,000, and all test images on the
engine. ``--missing 1`` does what has no figures in OUT yet, so that the command can be given again after it was stopped;
``--only table`` prints what there is.

    python benchmarks/accuracy.py --data-dir DIR --out OUT --models vit_tiny,swin_tiny --jobs 2 --epochs 40

Transformers for small images, of torchvision's parts.
"""

import json
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import quaver
from cifar import (
    OPTIONS,
    TRANSFORMERS,
    Images,
    accuracy,
    both_sets,
    deployed,
    in_parallel,
    load_weights,
    save_weights,
    train,
    zoo_model,
)
from measure import arguments, report

warnings.filterwarnings("ignore", module="torch")

MODELS = ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet20", "resnet56", "vgg16_bn", "googlenet")
# The largest learning rate that each trains well with, in batches of 256.
LEARNING_RATES = dict.fromkeys(MODELS, 0.1) | {
    **dict.fromkeys(("mobilenet_v1", "resnet20", "resnet56"), 0.2),
    **dict.fromkeys(("mobilenet_v3_large", "resnet50", "resnet101"), 0.1),
    **dict.fromkeys(("vgg16", "vgg19"), 0.02),  # without batch norm
    **dict.fromkeys(TRANSFORMERS, 0.001),
}
# With quantizers, of that rate.
QAT_LR = 0.1


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


def train_float(run: Run, data: Images, test: Images) -> None:
    start, model = time.time(), zoo_model(run.name, run.options)
    how = {**optimizer_of(run.name), "bf16": run.options.bf16, "on_epoch": run.log("float")}
    train(model, data, run.options.epochs, LEARNING_RATES[run.name], **how)
    save_weights(model, run.folder / "float.safetensors")
    figures = {"epochs": run.options.epochs, "float": accuracy(model, test), "float_top5": accuracy(model, test, 5)}
    run.note("float", **figures, float_top1=figures["float"], float_seconds=round(time.time() - start))


def trained_with_quantizers(
    name: str, weights: Path, options: Namespace, data: Images, *, safe: bool = True, on_epoch: Any = lambda *_: None
) -> quaver.Program:
    """A model from its float weights, trained on with quantizers for a fifth of the epochs."""
    model = load_weights(zoo_model(name, options), weights, options)
    example = data[0][:2].contiguous(memory_format=torch.channels_last)
    qat = quaver.quant_aware(model, {"saturation_safe": safe, "target": options.target}, example_inputs=(example,))
    if options.calibrate:
        qat = quaver.calibrate(qat, [data[0][: options.calibrate]]).train()
    how = {**optimizer_of(name), "warm_up": 0.05, "bf16": options.bf16, "on_epoch": on_epoch}
    train(qat, data, qat_epochs(options), QAT_LR * LEARNING_RATES[name], **how)
    return qat


def optimizer_of(name: str) -> dict[str, Any]:
    """Transformers are trained by AdamW, with the weight decay that is usual there."""
    return {"adam": True, "weight_decay": 0.05} if name in TRANSFORMERS else {}


def qat_epochs(options: Namespace) -> int:
    return options.qat_epochs or max(1, options.epochs // 5)


def kind_of(options: Namespace, *, safe: bool = True) -> str:
    """What the int8 program for a target is called."""
    return ("int8" if safe else "full_range") + ("" if options.target == "openvino" else f"_{options.target}")


def train_int8(run: Run, data: Images, test: Images, *, safe: bool = True, counted: bool = True) -> None:
    """Train for the target and save the int8 program; ``counted`` on the test images as it is, before any engine is."""
    start, kind = time.time(), kind_of(run.options, safe=safe)
    weights = run.folder / "float.safetensors"
    qat = trained_with_quantizers(run.name, weights, run.options, data, safe=safe, on_epoch=run.log(kind))
    figures = {kind: accuracy(qat, test)} if counted else {}
    quaver.save(quaver.convert(qat, save_int8=True)[1].to("cpu"), run.folder / kind)
    run.note(kind, **{f"{kind}_epochs": qat_epochs(run.options), **figures, f"{kind}_seconds": round(time.time() - start)})


def deploy(run: Run, test: Images) -> None:
    """Export to the engine, and all test images through it and through the simulation."""
    figures = deployed(run.folder / kind_of(run.options), test, run.options.target)
    suffix = "" if run.options.target == "openvino" else f"_{run.options.target}"
    run.note(f"deployed{suffix}", **{f"{key}{suffix}": value for key, value in figures.items()})


def stages(run: Run, data: Images, test: Images) -> None:
    wanted, kind = run.options.only.split(","), kind_of(run.options)
    full = kind_of(run.options, safe=False)
    steps: dict[str, tuple[str, Callable[[], None]]] = {
        "float": ("float", lambda: train_float(run, data, test)),
        "qat": (kind, lambda: train_int8(run, data, test, counted="deploy" not in wanted)),
        "full_range": (full, lambda: train_int8(run, data, test, safe=False)),
        "deploy": (kind.replace("int8", "deployed"), lambda: deploy(run, test)),
    }
    for step, (file, work) in steps.items():
        if step in wanted and not (run.options.missing and (run.folder / f"{file}.json").exists()):
            work()


def row_of(figures: dict[str, Any], target: str) -> dict[str, Any]:
    """A model's figures on a target."""
    suffix = "" if target == "openvino" else f"_{target}"
    keys = ("simulated", "deployed", "agreement", "equal", "why")
    row = {"model": figures["model"], "target": target, "float": figures.get("float", "")}
    row |= {key: figures.get(f"{key}{suffix}", "") for key in keys}
    row["simulated"] = row["simulated"] or figures.get(f"int8{suffix}", "")
    row["full range"] = figures.get(f"full_range{suffix}", "")
    best = row["deployed"] or row["simulated"]
    return row | {"drop": figures["float"] - best if best and "float" in figures else ""}


def main() -> None:
    options = arguments(
        __doc__,
        **OPTIONS,
        models=",".join(MODELS),
        only="float,qat,deploy",
        target="openvino",
        epochs=40,
        qat_epochs=0,
        calibrate=0,
        missing=0,
    )
    names, targets = options.models.split(","), options.target.split(",")
    if options.jobs > 1:
        in_parallel("--models", names, options.jobs)
    elif options.only != "table":
        data, test = both_sets(options)
        for name in names:
            for target in targets:
                stages(Run(name, Namespace(**{**vars(options), "target": target})), data, test)
    if options.jobs > 1 or len(names) * len(targets) > 1:
        rows = [row_of(Run(name, options).figures, target) for name in names for target in targets]
        report("Top-1 on CIFAR-10", rows, options.json)


if __name__ == "__main__":
    main()
