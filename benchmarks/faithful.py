"""Is the deployed model the trained one? Simulation against engines on CIFAR-10's 10,000 test images.

    python benchmarks/faithful.py --data-dir DIR --models-dir DIR [--targets openvino,onnx] [--isa AVX2] [--images 10000]

``--models-dir`` holds what `cifar_models.py` wrote. ``--isa AVX2`` makes OpenVINO behave like a processor without VNNI.
"""

import os
import sys
import tempfile
from pathlib import Path

if "--isa" in sys.argv:  # before the engine is loaded: it looks once
    os.environ["ONEDNN_MAX_CPU_ISA"] = sys.argv[sys.argv.index("--isa") + 1]

import quaver
from cifar_models import test_set
from measure import Rows, arguments, report


def main() -> None:
    options = arguments(__doc__, data_dir="", models_dir="", targets="openvino", isa="", images=10000, layers=1)
    images, labels = (tensor[: options.images] for tensor in test_set(Path(options.data_dir)))
    rows: Rows = []
    for folder in sorted(path for path in Path(options.models_dir).iterdir() if path.is_dir()):
        program = quaver.load(folder)
        for target in options.targets.split(","):
            with tempfile.TemporaryDirectory() as out:
                artefact = quaver.export(program, out, target=target)
                batches = zip(images.split(250), labels.split(250), strict=True)
                result = quaver.verify(program, artefact, batches, layers=bool(options.layers))
            worst = result.worst_layer
            rows.append(
                {
                    "model": folder.name,
                    "engine": target,
                    "simulated %": 100 * (result.accuracy_simulated or 0),
                    "deployed %": 100 * (result.accuracy_deployed or 0),
                    "agreement %": 100 * result.agreement,
                    "worst integers equal %": 100 * result.integers_equal,
                    "worst tensor": "none" if worst is None else worst.name,
                    "logit steps": result.largest_difference,
                }
            )
            print(rows[-1], flush=True)
    report(f"Simulation and engine on {options.images} images {options.isa}", rows, options.json)


if __name__ == "__main__":
    main()
