"""The tables that the reference publishes, for its models: what int8 costs in accuracy, and what it gains in speed and size.

    python benchmarks/reference_tables.py --data-dir DIR --out OUT                     everything, where there is an engine
    python benchmarks/reference_tables.py --data-dir DIR --out OUT --only train --jobs 8         on an accelerator
    python benchmarks/reference_tables.py --data-dir DIR --out OUT --only deploy,speed           on the processor that counts

DIR holds cifar-10-batches-bin: top-1 and top-5 are of its 10,000 test images, for the float model, the simulation and the
int8 file on OpenVINO. Training is `accuracy.py`'s. Speed is of the very files whose accuracy is measured, float and int8
taking turns, at one thread and at all of them; images of 32 pixels (`int8_speed.py` has 224).
"""

import os
import warnings
from argparse import Namespace
from pathlib import Path

import torch
from torch import Tensor

import quaver
from accuracy import Run, train_float, train_int8
from cifar import OPTIONS, Images, both_sets, in_parallel, load_weights, test_set, top_k, zoo_model
from int8_speed import export_float
from measure import arguments, report
from quaver.engines import installed
from quaver.measure.latency import measure

warnings.filterwarnings("ignore", module="torch")

MODELS = ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large", "resnet50", "resnet101", "vgg16", "vgg19", "googlenet")
BATCHES = (1, 50)


def train(run: Run) -> None:
    data, test = both_sets(run.options)
    train_float(run, data, test)
    train_int8(run, data, test)


def files(run: Run) -> tuple[Path, Path]:
    """The float model and the int8 program as OpenVINO's files."""
    return run.folder / "float.xml", run.folder / "int8.xml"


def deploy(run: Run, test: Images) -> None:
    """Write both files; all test images through the simulation and through both."""
    options = run.options
    float_file, int8_file = files(run)
    model = load_weights(zoo_model(run.name, options), run.folder / "float.safetensors", options)
    export_float(model.cpu().eval(), run.folder / "float.onnx", float_file, size=32)
    int8 = quaver.load(run.folder / "int8")
    quaver.export(int8, int8_file, target="openvino")
    int8 = int8.to(options.device).eval()
    given = {"simulated": [], "deployed": [], "float_deployed": []}
    engines = {
        "deployed": quaver.runtime.load(int8_file, threads=all_threads()),
        "float_deployed": quaver.runtime.load(float_file, threads=all_threads()),
    }
    for images in test[0].split(250):
        with torch.no_grad():
            given["simulated"].append(int8(images.to(options.device)).cpu())
        for name, engine in engines.items():
            given[name].append(torch.from_numpy(engine(images.numpy())))
    outputs = {name: torch.cat(parts) for name, parts in given.items()}
    figures = {f"{name}_top{k}": top_k(output, test[1], k) for name, output in outputs.items() for k in (1, 5)}
    run.note("deployed", **figures, **compared(outputs["simulated"], outputs["deployed"]))


def compared(simulated: Tensor, deployed: Tensor) -> dict[str, float]:
    """How many images, in percent, have the same answer, and how many the same bits."""
    same = (simulated.argmax(1) == deployed.argmax(1)).double().mean()
    equal = (simulated == deployed).all(1).double().mean()
    return {"agreement": 100 * float(same), "equal": 100 * float(equal)}


def speed(run: Run) -> None:
    """Images per second of both files, and how large they are."""
    names = dict(zip(("float", "int8"), files(run), strict=True))
    figures: dict[str, float] = {f"{name}_mb": file.with_suffix(".bin").stat().st_size / 1e6 for name, file in names.items()}
    for threads in (1, all_threads()):
        runners = {name: installed("openvino").load(file, threads) for name, file in names.items()}
        for batch in BATCHES:
            for name, taken in measure(runners, batch, rounds=run.options.rounds).items():
                figures[f"{name}_{threads if threads == 1 else 'all'}_{batch}"] = taken.images_per_second
    run.note("speed", threads=all_threads(), **figures)


def all_threads() -> int:
    return len(os.sched_getaffinity(0))


def accuracy_rows(runs: list[Run]) -> list[dict[str, object]]:
    rows = []
    for run in runs:
        figures = run.figures
        row: dict[str, object] = {"model": run.name}
        for k in (1, 5):
            stages = {name: figures[f"{name}_top{k}"] for name in ("float", "simulated", "deployed")}
            row |= {f"top-{k} {name}": f"{value:.2f}" for name, value in stages.items()}
            row[f"top-{k} int8 - float"] = f"{stages['deployed'] - stages['float']:+.2f}"
        rows.append(row | {name: f"{figures[name]:.2f}" for name in ("agreement", "equal")})
    return rows


def speed_rows(runs: list[Run]) -> list[dict[str, object]]:
    rows = []
    for run in runs:
        figures = run.figures
        for batch in BATCHES:
            row: dict[str, object] = {"model": run.name, "batch": batch}
            for threads in ("1", "all"):
                slow, fast = (figures[f"{name}_{threads}_{batch}"] for name in ("float", "int8"))
                at = f"{threads} thread" if threads == "1" else f"{figures['threads']} threads"
                row |= {f"float, {at}": f"{slow:.0f}", f"int8, {at}": f"{fast:.0f}", f"ratio, {at}": f"{fast / slow:.2f}"}
            rows.append(row | {"float MB": f"{figures['float_mb']:.1f}", "int8 MB": f"{figures['int8_mb']:.1f}"})
    return rows


def stages(names: list[str], options: Namespace) -> list[Run]:
    wanted, runs = options.only.split(","), [Run(name, options) for name in names]
    for run in runs if "train" in wanted else []:
        train(run)
    if "deploy" in wanted:
        images, labels = (tensor[: options.test_images] for tensor in test_set(Path(options.data_dir)))
        for run in runs:
            deploy(run, (images, labels))
    for run in runs if "speed" in wanted else []:
        speed(run)
    return runs


def main() -> None:
    options = arguments(
        __doc__,
        **OPTIONS,
        models=",".join(MODELS),
        only="train,deploy,speed",
        target="openvino",
        epochs=40,
        qat_epochs=0,
        calibrate=0,
        rounds=100,
    )
    names = options.models.split(",")
    if options.jobs > 1:  # only training gains from it: what runs at the same time cannot be timed
        in_parallel("--models", names, options.jobs)
        return
    runs = stages(names, options)
    if "speed" in options.only and len(runs) > 1:
        report("Top-1 and top-5 on CIFAR-10", accuracy_rows(runs), options.json)
        report("Images per second", speed_rows(runs), options.json and options.json.with_suffix(".speed.json"))


if __name__ == "__main__":
    main()
