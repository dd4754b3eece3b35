"""Which real architectures go float → QAT → int8 → engine untouched, with how much of them in int8, and how exactly?

    python benchmarks/corpus.py corpus.jsonl
    python benchmarks/corpus.py corpus.jsonl --targets openvino,litert,tensorrt --export-only litert,tensorrt
    python benchmarks/corpus.py corpus.jsonl --names timm/nfnet/nf_regnet_b0 --targets openvino,litert
    python benchmarks/corpus.py corpus.jsonl --targets openvino,litert,tensorrt --table

Of each torchvision and timm family its smallest model, or (``--all``) every model of torchvision: classifiers, segmenters,
and of detectors what is a network (trunk, pyramid, heads). Random weights, two images, `quant_aware` with no config, two
training steps, convert, export. The JSON lines hold one model and target each: what came of it; how many convolutions and
linear layers *the engine* ran in int8, and why the program left others in float; whether outputs and all quantized tensors
are the simulation's, and the first that is not. Those that are in the file already are skipped. Each model has a process of
its own and is captured once, for all targets; each target has a limit of processor time, so that a busy machine changes no
row. Targets of ``--export-only`` end with the export, which runs the file and refuses one that computes something else, and
see the images once, without a training step. Needs torchvision and timm; neither is needed to use Quaver.
"""

import argparse
import copy
import json
import multiprocessing
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

OPS_OF_TORCHVISION = Path(__file__).parent.parent / "tests" / "ecosystem"
"""Stands in for torchvision's compiled ops where they do not load, and has to be imported before it."""


def libraries() -> None:
    sys.path.append(str(OPS_OF_TORCHVISION))
    for library in ("torchvision_ops", "torchvision", "timm", "quaver"):
        import_module(library)
    import torch

    torch.set_num_threads(1)  # none are started, so that what is forked lacks none


def torchvision_names(*, smallest: bool = False) -> dict[str, float]:
    """All classifiers, segmenters and detectors, or the smallest of each file of torchvision; with their sizes."""
    import torchvision.models as zoo

    modules = (zoo, zoo.segmentation, zoo.detection)
    names = [(zoo.get_model_builder(name).__module__, name) for module in modules for name in zoo.list_models(module=module)]
    families: dict[str, dict[str, float]] = {}
    for family, name in names:
        size = parameters(lambda name=name: torchvision_model(name))
        families.setdefault(family if smallest else name, {})[f"torchvision/{name}"] = size
    return dict(min(sizes.items(), key=size_of) for sizes in families.values())


def timm_names() -> dict[str, float]:
    """The smallest model of each family, with its size."""
    import timm

    chosen = {}
    for family in timm.list_modules():
        names = timm.list_models(module=family)
        sizes = {f"timm/{family}/{name}": parameters(lambda name=name: timm.create_model(name)) for name in names}
        chosen |= dict([min(sizes.items(), key=size_of)]) if sizes else {}
    return chosen


def size_of(model: tuple[str, float]) -> float:
    return model[1]


def parameters(make: Any) -> float:
    """How many a model has, on the meta device; some cannot be built without memory, but another of the family can."""
    import torch

    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in make().parameters())
    except Exception:
        return float("inf")


def build(name: str) -> tuple[Any, tuple[int, int, int]]:
    """A model with random weights, and the size of its images: half the usual one where it takes that."""
    library, *_, model = name.split("/")
    if library == "torchvision":
        made, size = torchvision_model(model), (3, *TORCHVISION_SIZES.get(model, (224, 224)))
    else:
        import timm

        made = timm.create_model(model)
        size = made.default_cfg["input_size"]
    half = (size[0], size[1] // 2, size[2] // 2)
    return made, half if takes(made, half) else size


TORCHVISION_SIZES = {"inception_v3": (299, 299), "ssd300_vgg16": (300, 300)}


def torchvision_model(name: str) -> Any:
    import torchvision.models as zoo

    if zoo.get_model_builder(name).__module__.startswith("torchvision.models.detection"):
        return detector_network(zoo.get_model(name, weights=None, weights_backbone=None))
    return zoo.get_model(
        name, weights=None, **({"weights_backbone": None} if name in zoo.list_models(module=zoo.segmentation) else {})
    )


def detector_network(detector: Any) -> Any:
    """What of a detector is a network: its trunk, its pyramid and its heads on all maps, without boxes and their choice."""
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = detector.backbone
            self.head = detector.rpn.head if hasattr(detector, "rpn") else detector.head

        def forward(self, images: Any) -> Any:
            maps = self.trunk(images)
            return self.head(list(maps.values()) if isinstance(maps, dict) else [maps])

    return Network()


def takes(model: Any, size: tuple[int, ...]) -> bool:
    import torch

    try:
        with torch.no_grad():
            copy.deepcopy(model).train()(torch.zeros(2, *size))  # a head for training alone may want more pixels
            model.eval()(torch.zeros(2, *size))
    except Exception:
        return False
    return True


def captured(name: str) -> tuple[Any, Any]:
    """A model with random weights as a program; and two images."""
    import torch

    import quaver

    torch.manual_seed(0)
    model, size = build(name)
    images = torch.randn(2, *size)
    return quaver.capture(model.train(), (images,)), images


def trained(program: Any, images: Any, target: str, steps: int) -> Any:
    """The program prepared for the target after some steps, in evaluation; without any it has seen the images."""
    import torch

    import quaver

    torch.manual_seed(0)
    qat = quaver.quant_aware(program, {"target": target}).train()
    optimizer = torch.optim.SGD(qat.parameters(), lr=1e-4)
    for _ in range(steps):
        outputs = [one for one in torch.utils._pytree.tree_leaves(qat(images)) if one.is_floating_point()]
        optimizer.zero_grad()
        sum(output.float().square().mean() for output in outputs).backward()
        optimizer.step()
    if not steps:
        with torch.no_grad():
            qat(images)
    return qat.eval()


def rows_of(name: str, targets: dict[str, bool], seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each target: as far as it came, and the error that ended it. With ``True`` it ends with the export."""
    row: dict[str, Any] = {"model": name, "stage": "capture"}
    started = allow(seconds)
    try:
        program, images = captured(name)
    except Exception as error:
        yield from (row | {"target": target, "error": words(error)} for target in targets)
        return
    row |= {"size": images.shape[-1], "capture_seconds": round(time.process_time() - started)}
    for target, only_exports in targets.items():
        yield row_of(row | {"target": target}, program, images, only_exports, seconds)


def row_of(row: dict[str, Any], program: Any, images: Any, only_exports: bool, seconds: float) -> dict[str, Any]:
    started = allow(seconds)
    try:
        with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
            carry_through(program, images, row, Path(folder), only_exports)
        row["warnings"] = [str(one.message)[:300] for one in said if "export:" in str(one.message)]
        row["stage"] = "done"
    except Exception as error:
        row["error"] = words(error)
    return row | {"processor_seconds": round(time.process_time() - started)}


def words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:600]


def allow(seconds: float) -> float:
    """Let the process run for so much more processor time before it is ended; what it has had so far."""
    spent = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent + seconds), resource.RLIM_INFINITY))
    return spent


def carry_through(program: Any, images: Any, row: dict[str, Any], folder: Path, only_exports: bool) -> None:
    import torch

    import quaver
    from quaver.engines import ENGINES

    engine = ENGINES[row["target"]]
    row["stage"] = "train"
    qat = trained(program, images, engine.name, steps=0 if only_exports else 2)
    row["stage"] = "convert"
    frozen, int8 = quaver.convert(qat, save_int8=True)
    row["float"] = float_layers(int8)
    if not only_exports:
        with torch.no_grad():
            first, *others = [torch.utils._pytree.tree_leaves(program(images)) for program in (qat, frozen, int8)]
        row["bit_equal"] = all(map(torch.equal, first * 2, [value for other in others for value in other]))
    row["stage"] = "export"
    file = quaver.export(frozen, folder, target=engine.name)
    if only_exports:
        return
    row["stage"] = "layers"
    if engine.tells_layers:
        row |= executed(file, engine)
    row["stage"] = "compare"
    row |= compared(frozen, file, engine, images)


def float_layers(program: Any) -> dict[str, int]:
    """Why convolutions and linear layers are float in the program, and how many for each reason."""
    from quaver.operators import WEIGHTED
    from quaver.program.reason import ONLY_IN_TRAINING

    ops = [op for op in program.ops() if op.type in WEIGHTED | {"conv3d"} and op.why != ONLY_IN_TRAINING]
    return dict(Counter(f"{op.type}: {op.reason}" for op in ops if not op.quantized))


def executed(file: Path, engine: Any) -> dict[str, Any]:
    """What the engine ran: layers with weights, and products of two tensors; in int8, and in all."""
    from quaver.measure.executed_layers import layers

    products = [layer for layer in layers(file, engine.package, rounds=1, batch=2) if layer.role == "product"]
    weighted = [layer for layer in products if layer.type != "MatMul" or (layer.given and layer.given.weight())]
    others = [layer for layer in products if layer not in weighted]
    floats = [" + ".join(layer.ops) or layer.name for layer in weighted if not layer.is_int8]
    return {
        "layers": len(weighted),
        "int8": sum(layer.is_int8 for layer in weighted),
        "products": len(others),
        "products_int8": sum(layer.is_int8 for layer in others),
        "in_float": floats[:20],
    }


def compared(program: Any, file: Path, engine: Any, images: Any) -> dict[str, Any]:
    """The file against the simulation, at the outputs and at every quantized tensor that the engine shows."""
    from quaver.export import form_for, reopened
    from quaver.export.comparison import Allowed, Comparison

    comparison = Comparison(form_for(program, engine), file, engine, reopened(file, engine), Allowed(), all_shortcuts=False)
    comparison.add(images)
    tensors = comparison.layers()
    first = next((tensor for tensor in tensors if tensor.differ), None)
    noise = comparison.signal_to_noise_db
    return {
        "equal": not any(output.differ for output in comparison.results()),
        "decibel": round(noise, 1) if noise < 1e6 else None,
        "tensors": len(tensors),
        "differing": sum(1 for tensor in tensors if tensor.differ),
        "first": None if first is None else f"{first.name}: {first.differ} of {first.size}",
        "beyond": [f"{tensor.name}: {tensor.beyond} of {tensor.size}" for tensor in tensors if tensor.beyond][:3],
    }


def in_a_process(name: str, targets: dict[str, bool], seconds: float) -> Iterator[dict[str, Any]]:
    """Its rows, whatever becomes of the process: a fork, for importing the libraries takes as long as a small model."""
    waiting = list(targets)
    while waiting:
        ours, theirs = FORK.Pipe(duplex=False)
        left = {target: targets[target] for target in waiting}
        process = FORK.Process(target=send_rows, args=(theirs, name, left, seconds))
        process.start()
        theirs.close()
        while waiting and (row := received(ours)) is not None:
            waiting.remove(row["target"])
            yield row
        process.join()
        if waiting:
            late = process.exitcode == -signal.SIGXCPU
            ended = f"not done in {seconds:.0f} s of processor time" if late else f"the process died ({process.exitcode})"
            yield {"model": name, "target": waiting.pop(0), "stage": "process", "error": ended}


def send_rows(pipe: Any, name: str, targets: dict[str, bool], seconds: float) -> None:
    for row in rows_of(name, targets, seconds):
        pipe.send(row)


def received(pipe: Any) -> dict[str, Any] | None:
    try:
        return pipe.recv()
    except EOFError:
        return None


FORK = multiprocessing.get_context("fork")


def table(rows: list[dict[str, Any]], targets: list[str]) -> str:
    """The rows for docs/results.md: a model each, with three columns for a target that was compared, one for others."""
    by_model: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["target"]] = row
    whole = [target for target in targets if any("equal" in row for row in rows if row["target"] == target)]
    names = [
        name
        for target in targets
        for name in ((f"{target}: int8 layers", "outputs", "first tensor that differs") if target in whole else (target,))
    ]
    lines = ["| model | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for model, own in sorted(by_model.items()):
        cells = [cell for target in targets for cell in cells_of(own.get(target), target in whole)]
        lines.append(f"| {model.partition('/')[0]} {model.rpartition('/')[2]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cells_of(row: dict[str, Any] | None, compared: bool) -> list[str]:
    more = [""] * (2 if compared else 0)
    if row is None:
        return ["not run", *more]
    if "error" in row:
        return [f"{row['stage']}: {row['error'].splitlines()[0][:160]}", *more]
    if not compared:
        return ["yes"]
    counts = f"{row['int8']} / {row['layers']}" if row.get("layers") else ""
    return [counts, "exact" if row["equal"] else f"{row['decibel']:.0f} dB", row["first"] or ""]


def summary(rows: list[dict[str, Any]]) -> str:
    done = [row for row in rows if "error" not in row]
    reached = f"{len(done)} of {len(rows)} export"
    compared = [row for row in done if "equal" in row]
    if not compared:
        return f"{reached}."
    whole = [row for row in compared if row.get("int8") == row.get("layers")]
    exact = [row for row in compared if row["equal"]]
    good = [row for row in compared if row["equal"] or row["decibel"] >= 40]
    return (
        f"{reached} and run; {len(whole)} with all convolutions and linear layers in int8; "
        f"{len(exact)} exact at the outputs, {len(good)} at 40 dB or more."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="JSON lines, one for each model and target")
    parser.add_argument("--names", default="", help="these models, by library/name or timm/family/name")
    parser.add_argument("--targets", default="openvino")
    parser.add_argument("--all", action="store_true", help="every model of torchvision, not the smallest of a family")
    parser.add_argument("--export-only", default="", help="of the targets, those that end with the export")
    parser.add_argument("--seconds", type=float, default=300, help="of processor time, for each model and target")
    parser.add_argument("--table", action="store_true", help="print the table of what is in the file")
    options = parser.parse_args()
    libraries()
    options.export_only = options.export_only.split(",")
    targets, names = options.targets.split(","), [name for name in options.names.split(",") if name]
    file = Path(options.file)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if options.table:
        for target in targets:
            print(f"{target}: {summary([row for row in rows if row['target'] == target])}")
        print(f"\n{table(rows, targets)}")
        return
    known = {(row["model"], row["target"]) for row in rows}
    if not names:
        sizes = torchvision_names(smallest=not options.all) | timm_names()
        names = sorted(sizes, key=sizes.__getitem__)  # the quick ones first
    for name in names:
        asked = {target: target in options.export_only for target in targets if (name, target) not in known}
        for row in in_a_process(name, asked, options.seconds):
            with file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
