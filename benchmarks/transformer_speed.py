"""How much faster is a transformer in int8 than in float, on OpenVINO, one thread?

    python benchmarks/transformer_speed.py --models vit_tiny,swin_tiny --batches 1,16

Random weights, the networks of `cifar.TRANSFORMERS`; float and int8 take turns, medians. Float runs in float32 and as
OpenVINO would run it by itself (in bfloat16 where the processor has AMX). Beside them NNCF's ``quantize`` (its preset for
transformers) of the same float file, where it is installed.
"""

import warnings
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import quaver
from cifar import TRANSFORMERS
from measure import Rows, arguments, interleaved, report

warnings.filterwarnings("ignore")


def files(name: str, folder: Path) -> dict[str, Path]:
    """The float and the int8 file of a network."""
    torch.manual_seed(0)
    model, images = TRANSFORMERS[name](), torch.randn(8, 3, 32, 32)
    program = quaver.calibrate(model.eval(), [images], images=8)
    float_file = quaver.export(quaver.capture(model.eval(), (images,)), folder / "float")
    made = {"float": float_file, "quaver": quaver.export(quaver.convert(program.eval()), folder / "int8")}
    if find_spec("nncf"):
        import nncf
        import openvino as ov

        read = ov.Core().read_model(float_file)
        other = nncf.quantize(read, nncf.Dataset([images.numpy()]), model_type=nncf.ModelType.TRANSFORMER)
        ov.save_model(other, folder / "nncf.xml", compress_to_fp16=False)
        made["nncf"] = folder / "nncf.xml"
    return made


def rows(name: str, options: Namespace) -> Rows:
    """A row for each batch size."""
    import openvino as ov

    found: Rows = []
    with TemporaryDirectory() as folder:
        made = files(name, Path(folder))
        settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        exact = settings | {"INFERENCE_PRECISION_HINT": "f32"}
        core = ov.Core()
        compiled = {whose: core.compile_model(file, "CPU", exact) for whose, file in made.items()}
        compiled["float, by itself"] = core.compile_model(made["float"], "CPU", settings)
        for batch in map(int, options.batches.split(",")):
            images = np.random.default_rng(0).standard_normal((batch, 3, 32, 32), np.float32)
            jobs = {whose: (lambda model=model, images=images: model([images])) for whose, model in compiled.items()}
            times = interleaved(jobs, options.rounds, 5, lambda: None)
            best = min(seconds for whose, seconds in times.items() if "float" in whose)
            milliseconds = {f"{whose} ms": seconds * 1e3 for whose, seconds in times.items()}
            ratios = {f"best float / {whose}": best / times[whose] for whose in ("quaver", "nncf") if whose in times}
            found.append({"model": name, "batch": batch} | milliseconds | ratios)
            print(found[-1], flush=True)
    return found


def main() -> None:
    options = arguments(__doc__, models="vit_tiny,swin_tiny", batches="1,16", rounds=30, isa="")
    found = [row for name in options.models.split(",") for row in rows(name, options)]
    report("Transformers on OpenVINO, one thread", found, options.json)


if __name__ == "__main__":
    main()
