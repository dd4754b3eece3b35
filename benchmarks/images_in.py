"""How long from uint8 images to logits, preprocessing included?

    python benchmarks/images_in.py --cache /tmp/images                          everything, with --json for the figures
    python benchmarks/images_in.py --cache /tmp/images --prepare-only           quantize and export, measure later
    python benchmarks/images_in.py --cache /tmp/images --models mobilenet_v1 --size 32 --rounds 3      to see that it works

One image at a time, 224 pixels, random weights, on OpenVINO. The same model is run three ways: from bytes, by a file that
takes them (``export(image=…)``); from bytes that numpy prepares, by a file that takes floats; and from floats that are there
already. Beside it, where nncf is installed, what its ``quantize`` makes of the float model, fed by the same numpy, and from
floats that are there. Medians of calls that take turns in one run; a ratio is that of each to the file of bytes.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import quaver
from int8_speed import begun, export_float, has, leave, made, race_options
from measure import Rows, report
from quaver import models
from quaver.engines import installed
from quaver.measure.latency import interleaved, summary

MODELS = ("mobilenet_v1", "mobilenet_v2")
IMAGE = quaver.ImageInput((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MEAN, SCALE = (np.array(values, np.float32) for values in (IMAGE.mean, 1 / np.array(IMAGE.std)))


def prepared(image: np.ndarray) -> np.ndarray:
    """As fast as numpy prepares an image: in place, and one copy that turns it."""
    values = image.astype(np.float32)
    values *= np.float32(1 / 255)
    values -= MEAN
    values *= SCALE
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2))


# making the files


def prepare(name: str, folder: Path, options: Namespace) -> None:
    """Every file of a model that is not there yet."""
    files = [folder / part for part in ("bytes.xml", "floats.xml", "float.onnx", "float.xml")]
    if not all(file.exists() for file in files):
        make_ours(name, options.size, *files)
    if options.peers and has("nncf"):
        made(folder / "nncf.xml", lambda out: quantize_with_nncf(files[-1], out, options.size))


def make_ours(name: str, size: int, in_bytes: Path, in_floats: Path, float_onnx: Path, float_xml: Path) -> None:
    """A model with random weights, its ranges from random images, as two int8 files and as float."""
    torch.manual_seed(0)
    model = getattr(models, name)()
    qat = quaver.quant_aware(model, example_inputs=(torch.randn(2, 3, size, size),)).train()
    with torch.no_grad():
        for batch in images(size, 3):
            qat(torch.from_numpy(IMAGE.prepared(batch)))
    program = quaver.convert(qat)
    quaver.export(program, in_bytes, image=IMAGE)
    quaver.export(program, in_floats)
    export_float(model.eval(), float_onnx, float_xml, size)


def images(size: int, batches: int, batch: int = 4) -> list[np.ndarray]:
    chance = np.random.default_rng(0)
    return [chance.integers(0, 256, (batch, size, size, 3)).astype(np.uint8) for _ in range(batches)]


def quantize_with_nncf(float_xml: Path, out: Path, size: int) -> None:
    """NNCF's quantizer with its defaults, on the same kind of images."""
    import nncf
    import openvino as ov

    nncf.set_log_level("ERROR")
    given = [IMAGE.prepared(image) for image in images(size, 12, batch=1)]
    ov.save_model(nncf.quantize(ov.Core().read_model(float_xml), nncf.Dataset(given), subset_size=len(given)), out)


# measuring


def jobs_of(folder: Path, options: Namespace) -> dict[str, Callable[[], Any]]:
    """Each way from an image to logits, as a call."""
    (image,) = images(options.size, 1, batch=1)
    ready = prepared(image)

    def runner(file: str) -> Any:
        return installed("openvino").load(folder / file, options.threads)

    from_bytes, from_floats = runner("bytes.xml"), runner("floats.xml")
    jobs: dict[str, Callable[[], Any]] = {
        "bytes": lambda: from_bytes(image),
        "numpy": lambda: from_floats(prepared(image)),
        "floats": lambda: from_floats(ready),
    }
    if options.peers and (folder / "nncf.xml").exists():
        peer = runner("nncf.xml")
        jobs["nncf and numpy"] = lambda: peer(prepared(image))
        jobs["nncf floats"] = lambda: peer(ready)
    return jobs


def row_of(name: str, folder: Path, options: Namespace) -> dict[str, object]:
    """Milliseconds of each way, and how many times as fast bytes are."""
    taken = interleaved(jobs_of(folder, options), rounds=options.rounds, warmup=5)
    medians = {title: summary(seconds, 1).median_ms for title, seconds in taken.items()}
    ratios = {f"over {title}": medians[title] / medians["bytes"] for title in medians if title != "bytes"}
    return {"model": name} | {f"{title} ms": value for title, value in medians.items()} | ratios


def main() -> None:
    parser = race_options(__doc__, MODELS, 200, ("nncf",))
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    options = begun(parser)
    rows: Rows = []
    for name in options.models.split(","):
        folder = options.cache / f"{name}_{options.size}"
        folder.mkdir(parents=True, exist_ok=True)
        prepare(name, folder, options)
        if not options.prepare_only:
            rows.append(row_of(name, folder, options))
    if rows:
        report("From a uint8 image to logits, ms", rows, None)
        leave(options, rows)


if __name__ == "__main__":
    main()
