"""How much faster is int8 than the best float engine, and than what other quantizers make of the same models?

    python benchmarks/int8_speed.py --cache /tmp/speed                          everything, with --json for the figures
    python benchmarks/int8_speed.py --cache /tmp/speed --prepare-only           quantize and export, measure later
    python benchmarks/int8_speed.py --cache /tmp/speed --models resnet50 --batches 1 --isa AVX2

Random weights, images of 224 pixels. Float runs on OpenVINO and on ONNX Runtime; a ratio is best float / int8, medians of
calls that take turns in one run. Beside Quaver's model: onnxruntime's ``quantize_static`` (Q/DQ, per channel, unsigned and
signed activations, each on ONNX Runtime and on OpenVINO: the best of the four) and NNCF's ``quantize`` on OpenVINO, from the
very same float files, as torch and OpenVINO export them. A peer that is not installed is left out, and so are its columns.

``--isa AVX2`` makes OpenVINO behave like a smaller processor. ONNX Runtime cannot be told, so nothing runs on it then.
"""

import json
import sys
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import quaver
from measure import Rows, keep_to, machine, report
from quaver import models
from quaver.engines import installed
from quaver.log_suppression import suppressed_logs
from quaver.machine.cpu import cpu
from quaver.measure.executed_layers import layers, products_in_int8
from quaver.measure.latency import interleaved, summary
from quaver.runtime.example_batches import random_batch

warnings.filterwarnings("ignore")

MODELS = ("mobilenet_v1", "mobilenet_v2", "resnet50", "resnet101", "vgg16", "vgg19", "googlenet")
SIZE = 224
ACTIVATIONS = ("u8", "s8")


@dataclass(frozen=True)
class Contender:
    """A file on an engine: whose it is (``float``, ``quaver``, ``ort`` or ``nncf``) and what to call it."""

    whose: str
    title: str
    path: Path
    engine: str


# making the files


def prepare(name: str, folder: Path, options: Namespace) -> None:
    """Every file of a model that is not there yet."""
    float_onnx, float_xml, int8 = (folder / part for part in ("float.onnx", "float.xml", "quaver.xml"))
    if not (float_onnx.exists() and float_xml.exists() and int8.exists()):
        make_ours(name, float_onnx, float_xml, int8)
    if options.peers and has("onnxruntime"):
        for activations in ACTIVATIONS:
            made(folder / f"ort_{activations}.onnx", lambda out, a=activations: quantize_with_ort(float_onnx, out, a))
    if options.peers and has("nncf"):
        made(folder / "nncf.xml", lambda out: quantize_with_nncf(float_xml, out))


def make_ours(name: str, float_onnx: Path, float_xml: Path, int8: Path) -> None:
    """A model with random weights, ranges from a few random batches, as float and as int8."""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = getattr(models, name)()
    qat = quaver.quant_aware(model, example_inputs=(torch.randn(2, 3, SIZE, SIZE),)).train()
    with torch.no_grad():
        for _ in range(3):
            qat(torch.randn(4, 3, SIZE, SIZE))
    quaver.export(quaver.convert(qat), int8, target="openvino")
    export_float(model.eval(), float_onnx, float_xml)
    print(f"{name}: float and int8 files in {time.perf_counter() - start:.0f} s", flush=True)


def export_float(model: torch.nn.Module, float_onnx: Path, float_xml: Path, size: int = SIZE) -> None:
    """The float model as anyone exports it: by torch's exporter, which folds batch norms, and OpenVINO's converter."""
    import openvino as ov

    draft = float_onnx.with_name("draft_float.onnx")
    with suppressed_logs():
        torch.onnx.export(
            model,
            (torch.randn(2, 3, size, size),),
            draft,
            input_names=["x"],
            output_names=["output"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=20,
            dynamo=True,
            optimize=True,
            verbose=False,
            external_data=False,
        )
    ov.save_model(ov.convert_model(draft), float_xml, compress_to_fp16=False)
    draft.replace(float_onnx)


def made(path: Path, make: Callable[[Path], None]) -> None:
    """Call ``make`` unless the file is there; what is half made does not get the name."""
    if path.exists():
        return
    start = time.perf_counter()
    draft = path.with_name(f"draft_{path.name}")
    make(draft)
    for suffix in {".bin", path.suffix} if path.suffix == ".xml" else {path.suffix}:
        draft.with_suffix(suffix).replace(path.with_suffix(suffix))
    print(f"{path.parent.name}: {path.name} in {time.perf_counter() - start:.0f} s", flush=True)


def calibration() -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    for _ in range(12):
        yield generator.standard_normal((1, 3, SIZE, SIZE), np.float32)


def quantize_with_ort(float_onnx: Path, out: Path, activations: str) -> None:
    """Quantize statically with onnxruntime, as its documentation has it: prepared first, Q/DQ, per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.images = calibration()

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(({"x": image} for image in self.images), None)

    ready = out.with_name(f"ready_{out.name}")
    quant_pre_process(str(float_onnx), str(ready), skip_symbolic_shape=True)
    quantize_static(
        str(ready),
        str(out),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8 if activations == "u8" else QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
    ready.unlink()


def quantize_with_nncf(float_xml: Path, out: Path) -> None:
    """NNCF's quantizer with its defaults."""
    import nncf
    import openvino as ov

    nncf.set_log_level("ERROR")
    images = list(calibration())
    ov.save_model(nncf.quantize(ov.Core().read_model(float_xml), nncf.Dataset(images), subset_size=len(images)), out)


def has(package: str) -> bool:
    return find_spec(package) is not None


# measuring


def contenders(folder: Path, options: Namespace) -> list[Contender]:
    """Everything in a model's folder that can be measured here."""
    onnxruntime = has("onnxruntime") and not options.isa
    found = [
        Contender("quaver", "quaver on openvino", folder / "quaver.xml", "openvino"),
        Contender("float", "float on openvino", folder / "float.xml", "openvino"),
    ]
    if onnxruntime:
        found.append(Contender("float", "float on onnxruntime", folder / "float.onnx", "onnxruntime"))
    for activations in ACTIVATIONS:
        for engine in ("openvino", *(["onnxruntime"] if onnxruntime else [])):
            title = f"quantize_static {activations}s8 on {engine}"
            found.append(Contender("ort", title, folder / f"ort_{activations}.onnx", engine))
    found.append(Contender("nncf", "nncf on openvino", folder / "nncf.xml", "openvino"))
    return [one for one in found if one.path.exists() and (options.peers or one.whose in ("float", "quaver"))]


def race(racing: list[Contender], batch: int, options: Namespace) -> dict[str, Any]:
    """Latencies by title; as many rounds as the budget allows, and three at least."""
    jobs = {}
    for one in racing:
        run = installed(one.engine).load(one.path, options.threads)
        inputs = random_batch(run.inputs, batch)
        jobs[one.title] = lambda run=run, inputs=inputs: run(*inputs)
    first = interleaved(jobs, rounds=1, warmup=2)
    turn = sum(seconds for (seconds,) in first.values())
    rounds = min(options.rounds, max(3, int(options.seconds / turn)))
    return {title: summary(taken, batch) for title, taken in interleaved(jobs, rounds=rounds, warmup=1).items()}


def row_of(name: str, batch: int, racing: list[Contender], found: dict[str, Any], int8_layers: str) -> dict[str, object]:
    """The best of each, and how far ahead of the best float each is."""

    def best(whose: str) -> str:
        return min((one.title for one in racing if one.whose == whose), key=lambda title: found[title].median_ms)

    present = {one.whose for one in racing}
    baseline = best("float")
    row: dict[str, object] = {
        "model": name,
        "batch": batch,
        "int8 layers": int8_layers,
        "float ms": found[baseline].median_ms,
        "on": baseline.split()[-1],
        "int8 ms": found[best("quaver")].median_ms,
        "quaver": found[baseline].median_ms / found[best("quaver")].median_ms,
    }
    ratios = {
        whose: found[baseline].median_ms / found[best(whose)].median_ms for whose in ("ort", "nncf") if whose in present
    }
    if "ort" in ratios:
        row |= {"quantize_static": ratios["ort"], "as": best("ort").removeprefix("quantize_static ")}
    if "nncf" in ratios:
        row["nncf"] = ratios["nncf"]
    if ratios:
        row["over the better"] = float(str(row["quaver"])) / max(ratios.values())
    return row


def int8_layers(racing: list[Contender], options: Namespace) -> dict[str, list[int]]:
    """How many convolutions and linear layers of each quantized file ran in int8, of how many."""
    quantized = [one for one in racing if one.whose != "float"]
    return {
        one.title: list(products_in_int8(layers(one.path, one.engine, threads=options.threads, rounds=1)))
        for one in quantized
    }


# the whole


def race_options(title: str | None, usual: Sequence[str], rounds: int, peers: Sequence[str]) -> ArgumentParser:
    """What every race of files on engines can be told."""
    parser = ArgumentParser(description=(title or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(usual), help="which, with commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=rounds, help="calls of each, at most")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the files; what is there is not made again")
    parser.add_argument("--prepare-only", action="store_true", help="make the files and stop")
    parser.add_argument("--no-peers", dest="peers", action="store_const", const=(), default=peers, help="without others'")
    parser.add_argument("--isa", default="", help="AVX2, AVX512_CORE_VNNI …: OpenVINO keeps to it")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser


def begun(parser: ArgumentParser) -> Namespace:
    """The options of a race, and everything set for it."""
    options = parser.parse_args()
    keep_to(options.isa)
    if unknown := set(options.models.split(",")) - set(dir(models)):
        parser.error(f"--models: there is no {', '.join(sorted(unknown))}")
    torch.set_num_threads(options.threads)
    print(f"CPU: {cpu().words()}")
    for peer in options.peers:
        if not has(peer):
            print(f"{peer} is not installed: its columns are left out, unless its files are in {options.cache}")
    return options


def leave(options: Namespace, rows: Rows, **more: object) -> None:
    """Write what was found, and on what, where ``--json`` says."""
    if options.json:
        settings = {key: str(value) for key, value in vars(options).items()}
        record = {"machine": machine(), "cpu": cpu().words(), "settings": settings, "rows": rows, **more}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


def main() -> None:
    parser = race_options(__doc__, MODELS, 100, ("onnxruntime", "nncf"))
    parser.add_argument("--batches", default="1,16", help="batch sizes, with commas")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="budget of a model at a batch size; three rounds at least"
    )
    options = begun(parser)
    rows: Rows = []
    details: list[dict[str, object]] = []
    for name in options.models.split(","):
        folder = options.cache / name
        folder.mkdir(parents=True, exist_ok=True)
        prepare(name, folder, options)
        if options.prepare_only:
            continue
        racing = contenders(folder, options)
        counts = int8_layers(racing, options)
        for batch in map(int, options.batches.split(",")):
            found = race(racing, batch, options)
            int8, products = counts["quaver on openvino"]
            rows.append(row_of(name, batch, racing, found, f"{int8} of {products}"))
            details += [{"model": name, "title": title} | vars(latency) for title, latency in found.items()]
            print(rows[-1], flush=True)
        details.append({"model": name, "int8_layers": counts})
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        rows = [{column: row.get(column, "") for column in columns} for row in rows]
        report("How many times as fast as the best float engine", rows, None)
        leave(options, rows, details=details)
    left = [f"{row['model']} ({row['int8 layers']})" for row in rows if len(set(str(row["int8 layers"]).split(" of "))) > 1]
    if left:
        sys.exit(f"not every convolution and linear layer runs in int8: {', '.join(dict.fromkeys(left))}")


if __name__ == "__main__":
    main()
