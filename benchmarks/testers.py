"""The Python tester against the C++ one: same model, data file, batches and threads, in turns; frames per second of each.

``make cpp && python benchmarks/testers.py`` makes a MobileNetV1 of random weights and a data file of noise, and prints the
medians and their ratio, in int8 and in float: 0.9 to 1.1 is what is meant to be. ``--model OUT/int8 --data val.bin``
measures a model of yours. On a machine that does something else besides, only the ratio says anything.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import torch

import quaver
from quaver.data.binary import BinaryWriter
from quaver.deployment import write_float_model, write_tree
from quaver.models import mobilenet_v1

CPP = Path(__file__).parent.parent / "cpp" / "build" / "sample_tester"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="A folder with a model, as both testers take it.")
    parser.add_argument("--data", type=Path, help="Its data file (quaver convert-data).")
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=200, help="Images of the file that is made.")
    parser.add_argument("--size", type=int, default=224, help="Height and width of these images.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tester", type=Path, default=CPP, help="The C++ tester.")
    options = parser.parse_args()
    if not options.tester.exists():
        parser.error(f"{options.tester} is not built: make cpp builds it.")
    if (options.model is None) != (options.data is None):
        parser.error("--model and --data belong together.")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        models = [options.model] if options.model else made(place, options.size)
        data = options.data or noise(place / "data.bin", options.images, options.size)
        for model in models:
            for batch_size in options.batch_sizes:
                compare(model, data, batch_size, options)


def made(place: Path, size: int) -> list[Path]:
    """An int8 and a float MobileNetV1 with random weights: speed does not ask what they are."""
    torch.manual_seed(0)
    program = quaver.capture(mobilenet_v1(num_classes=1000), (torch.zeros(1, 3, size, size),))
    write_float_model(program, place)
    qat = quaver.quant_aware(program).train()
    with torch.no_grad():
        qat(torch.randn(8, 3, size, size))
    write_tree(quaver.convert(qat.eval()), place, left_out=print)
    return [place / "int8", place / "fp32"]


def noise(path: Path, images: int, size: int) -> Path:
    """A data file of random images and labels."""
    random = np.random.default_rng(0)
    with BinaryWriter(path, image_shape=(3, size, size), classes=1000, layout="header") as writer:
        for _ in range(images):
            writer.add(random.standard_normal((3, size, size), dtype=np.float32), int(random.integers(1000)))
    return path


def compare(model: Path, data: Path, batch_size: int, options: argparse.Namespace) -> None:
    """Both testers in turns, each in a process of its own, as they are used."""
    shared = [f"--infer_model={model}", f"--infer_data={data}", f"--batch_size={batch_size}"]
    python = [sys.executable, "-m", "quaver", "test", *shared, f"--threads={options.threads}", "--skip_batch_num=1"]
    cpp = [str(options.tester), *shared, f"--num_threads={options.threads}", "--warmup_size=1"]
    speeds: dict[str, list[float]] = {"Python": [], "C++": []}
    for _ in range(options.rounds):
        speeds["Python"].append(fps(python))
        speeds["C++"].append(fps(cpp))
    ours, theirs = (median(one) for one in speeds.values())
    words = f"{ours:.1f} frames per second in Python, {theirs:.1f} in C++, ratio {ours / theirs:.3f}"
    print(f"{model.name}, batch {batch_size}, {options.threads} threads: {words}", flush=True)


def fps(command: list[str]) -> float:
    """Frames per second, as a tester writes them."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([*command, f"--json={file.name}"], check=True, stdout=subprocess.DEVNULL)
        return float(json.loads(Path(file.name).read_text())["fps"])


if __name__ == "__main__":
    main()
