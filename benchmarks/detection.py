"""Does the int8 detector find what the float one finds? Average precision of float, simulated and deployed, on drawn shapes.

    python benchmarks/detection.py --out OUT                             everything, where there is an engine
    python benchmarks/detection.py --out OUT --only train --workers 12   on an accelerator; needs no engine and no metric
    python benchmarks/detection.py --out OUT --only deploy               the rest on another machine, with what is in OUT
    python benchmarks/detection.py --out OUT --train 640 --val 200 --size 96 --batch 16   minutes on two cores

The images are drawn anew each time, the same ones (`quaver.data.write_shapes`), with anchors fitted to them. OUT gets the
float program, the int8 program and the figures.
"""

import json
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import quaver
from measure import Rows, arguments, report
from quaver.config.recipe import Phase, QuantPhase
from quaver.data import ImageData, Loader, open_dataset, write_shapes
from quaver.data.shapes import CLASSES
from quaver.detection import Detection, fitted_anchors
from quaver.detection.anchors import anchors_of
from quaver.models import build
from quaver.training.job import Job
from quaver.training.listener import Listener, ProgressLine
from quaver.training.trainer import Trainer

warnings.filterwarnings("ignore", module="torch")

SIDES = (10, 2)  # the smallest and the largest shape: a tenth and a half of the image
MODEL = "yolov3_mobilenet_v1"
# as `quaver quantize --dataset voc` trains
AS_DETECTORS: dict[str, Any] = {"optimizer": "adamw", "clip_norm": 10.0}


class Told(Listener):
    """Prints a line for every epoch."""

    def logged(self, line: ProgressLine) -> None:
        """Its first batch."""
        print(f"{line.phase}, epoch {line.at.epoch}: loss {line.figures['loss']:.2f}", flush=True)


@contextmanager
def drawn(options: Namespace) -> Iterator[Callable[..., ImageData]]:
    """What opens a split of the set, while its folder is there."""
    with tempfile.TemporaryDirectory() as folder:
        smallest, largest = (options.size // part for part in SIDES)
        write_shapes(folder, train=options.train, val=options.val, size=options.size, sides=(smallest, largest))
        yield partial(open_dataset, "voc", data_dir=folder, image_size=options.size)


def train(options: Namespace) -> None:
    """Float, then with quantizers; both programs and the settings are left in the folder."""
    out, start = Path(options.out), time.time()
    with drawn(options) as data:
        anchors = fitted_anchors(data("train"))
        task, images = Detection(data("train").classes, options.size, anchors), data("train", augment=True)
        batches = Loader(images, options.batch, shuffle=True, drop_last=True, workers=options.workers)
        torch.manual_seed(options.seed)
        model = build(MODEL, num_classes=task.classes, image_size=options.size, scale=options.scale)
        program = quaver.capture(model, (torch.zeros(1, *images.image_shape),))
        phase = Phase(num_epochs=options.epochs, lr=options.lr, warmup_epochs=1, **AS_DETECTORS)
        fit("float", program, phase, batches, task, options.device)
        quaver.save(program.cpu().eval(), out / "float")
        float_seconds = time.time() - start
        qat = quaver.quant_aware(program)
        phase = QuantPhase(num_epochs=options.qat_epochs, lr=options.qat_lr, **AS_DETECTORS)
        fit("quantize", qat, phase, batches, task, options.device)
    _, int8 = quaver.convert(qat.cpu().eval(), save_int8=True)
    quaver.save(int8, out / "int8")
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "only", "json")}
    seconds = {"float_seconds": round(float_seconds), "seconds": round(time.time() - start)}
    (out / "train.json").write_text(json.dumps(settings | {"anchors": anchors} | seconds, indent=2) + "\n")
    print(seconds, flush=True)


def fit(name: str, program: quaver.Program, phase: Phase, batches: Loader, task: Detection, device: str) -> None:
    job = Job(
        name=name,
        program=program.to(device),
        task=task,
        phase=phase,
        batches=batches,
        device=torch.device(device),
        log_period=len(batches),
        listeners=(Told(),),
    )
    Trainer(job).run()


def deploy(options: Namespace) -> Rows:
    """Export, and the same unseen images through all three."""
    out = Path(options.out)
    settings = Namespace(**json.loads((out / "train.json").read_text()))
    task = Detection(len(CLASSES), settings.size, anchors_of(np.ravel(settings.anchors).tolist()))
    int8 = quaver.load(out / "int8")
    with drawn(settings) as data, tempfile.TemporaryDirectory() as folder:
        unseen = Loader(data("val"), settings.batch, shuffle=False)
        models = {
            "float": quaver.load(out / "float"),
            "int8, simulated": int8,
            "int8, deployed (OpenVINO)": quaver.runtime.load(quaver.export(int8, folder)),
        }
        return [{"model": name} | task.evaluate(model, unseen) for name, model in models.items()]


def main() -> None:
    options = arguments(
        __doc__,
        out="",
        only="train,deploy",
        device="cuda" if torch.cuda.is_available() else "cpu",
        workers=0,
        train=4000,
        val=1000,
        size=128,
        batch=32,
        scale=0.25,
        epochs=12,
        lr=0.005,
        qat_epochs=3,
        qat_lr=0.0005,
        seed=0,
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    if "train" in options.only.split(","):
        train(options)
    if "deploy" in options.only.split(","):
        report("Average precision on drawn shapes", deploy(options), options.json or Path(options.out) / "deploy.json")


if __name__ == "__main__":
    main()
