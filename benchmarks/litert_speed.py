"""How fast is int8 on LiteRT beside its float, and beside what LiteRT's own converter makes of the same model?

    chrt -f 50 taskset -c 1 python benchmarks/litert_speed.py --cache /tmp/litert --models mobilenet_v1,resnet50
    python benchmarks/litert_speed.py --cache /tmp/litert --prepare-only        write the files, measure later

Random weights, images of 224 pixels (32 for resnet20 and resnet56), batch 1, one thread, XNNPACK. Each file is called as
anyone calls it: set the input, invoke, get the output; the calls take turns, medians. Beside Quaver's float and int8
file: litert-torch's float file, and int8 files by its two ways, ``pt2e`` (its quantizer on the exported graph) and ``aeq``
(ai-edge-quantizer on its float file, ``static_wi8_ai8``). ``--layout nhwc`` gives all of them channels last. Peers:

    pip install litert-torch
"""

import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import quaver
from int8_speed import begun, has, leave, made, race_options
from measure import Rows, report
from quaver.engines.litert.flatbuffer import unpacked
from quaver.engines.litert.runner import engine, without_notes
from quaver.measure.latency import interleaved, summary
from quaver.models import build

warnings.filterwarnings("ignore")

MODELS = ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet20", "resnet18", "resnet50")
SMALL = {"resnet20": 32, "resnet56": 32}
OURS = ("float", "int8")
PEERS = ("float_litert_torch", "int8_pt2e", "int8_aeq")


def size_of(name: str) -> int:
    return SMALL.get(name, 224)


def images(name: str, count: int) -> Tensor:
    return torch.randn(count, 3, size_of(name), size_of(name), generator=torch.Generator().manual_seed(0))


# making the files


def prepare(name: str, folder: Path, options: Namespace) -> None:
    """Every file of a model that is not there yet."""
    torch.manual_seed(0)
    model = build(name, num_classes=10 if name in SMALL else 1000, image_size=size_of(name)).eval()
    made(folder / "float.tflite", lambda out: export(quaver.capture(model, (images(name, 2),)), out, options))
    made(folder / "int8.tflite", lambda out: export(quantized(model, name), out, options))
    if options.peers and has("litert_torch"):
        peer = last(model) if options.layout == "nhwc" else model
        given = images(name, 1).permute(0, 2, 3, 1).contiguous() if options.layout == "nhwc" else images(name, 1)
        made(folder / "float_litert_torch.tflite", lambda out: converted(peer, given, out))
        made(folder / "int8_pt2e.tflite", lambda out: by_pt2e(peer, given, out))
        made(folder / "int8_aeq.tflite", lambda out: by_aeq(folder / "float_litert_torch.tflite", given, out))


def quantized(model: nn.Module, name: str) -> quaver.Program:
    """Ranges from a few random images."""
    return quaver.convert(quaver.calibrate(model, [images(name, 8)], target="litert"))


def export(program: quaver.Program, out: Path, options: Namespace) -> None:
    quaver.export(program, out, target="litert", input_layout=options.layout)


def last(model: nn.Module) -> nn.Module:
    """A model that takes its images with their channels last."""
    import litert_torch

    return litert_torch.to_channel_last_io(model, args=[0]).eval()


def converted(model: nn.Module, given: Tensor, out: Path, **options: Any) -> None:
    import litert_torch

    litert_torch.convert(model, (given,), **options).export(str(out))


def by_pt2e(model: nn.Module, given: Tensor, out: Path) -> None:
    """LiteRT's quantizer of exported graphs: per channel, ranges from a few images."""
    from litert_torch.quantize.pt2e_quantizer import PT2EQuantizer, get_symmetric_quantization_config
    from litert_torch.quantize.quant_config import QuantConfig
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = PT2EQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=False))
    prepared = prepare_pt2e(torch.export.export(model, (given,)).module(), quantizer)
    with torch.no_grad():
        for _ in range(3):
            prepared(given)
    int8 = convert_pt2e(prepared, fold_quantize=False)
    converted(int8, given, out, quant_config=QuantConfig(pt2e_quantizer=quantizer))


def by_aeq(float_file: Path, given: Tensor, out: Path) -> None:
    """ai-edge-quantizer with its recipe for int8 weights and activations."""
    from ai_edge_quantizer import quantizer, recipe

    ((signature, ports),) = interpreter(float_file).get_signature_list().items()
    work = quantizer.Quantizer(str(float_file))
    work.load_quantization_recipe(recipe.static_wi8_ai8())
    seen = work.calibrate({signature: [{ports["inputs"][0]: given.numpy()}]})
    work.quantize(seen).export_model(str(out), overwrite=True)


# measuring


def interpreter(file: Path) -> Any:
    with without_notes():
        return engine().Interpreter(str(file), num_threads=1)


def call_of(file: Path) -> Callable[[], object]:
    """What runs a file once on a random image."""
    run = interpreter(file)
    with without_notes():
        run.allocate_tensors()
    (given,), (got,) = run.get_input_details(), run.get_output_details()
    shape, dtype = tuple(given["shape"]), given["dtype"]
    random = np.random.default_rng(0)
    batch = random.standard_normal(shape, np.float32) if dtype == np.float32 else random.integers(-127, 128, shape, dtype)

    def call() -> object:
        run.set_tensor(given["index"], batch)
        run.invoke()
        return run.get_tensor(got["index"])

    return call


def ops_in(file: Path) -> Counter[str]:
    """How often a file has each op."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    words = {value: name for name, value in vars(BuiltinOperator).items() if isinstance(value, int)}
    model = unpacked(file.read_bytes())
    return Counter(words[model.operatorCodes[op.opcodeIndex].builtinCode] for op in model.subgraphs[0].operators)


def row_of(name: str, folder: Path, options: Namespace) -> dict[str, object]:
    files = {kind: folder / f"{kind}.tflite" for kind in (*OURS, *(PEERS if options.peers else ()))}
    files = {kind: file for kind, file in files.items() if file.exists()}
    taken = interleaved({kind: call_of(file) for kind, file in files.items()}, rounds=options.rounds, warmup=3)
    ms = {kind: summary(seconds, 1).median_ms for kind, seconds in taken.items()}
    peers = [value for kind, value in ms.items() if kind in PEERS[1:]]
    row: dict[str, object] = {"model": name, **{f"{kind} ms": value for kind, value in ms.items()}}
    row["float / int8"] = min(value for kind, value in ms.items() if kind.startswith("float")) / ms["int8"]
    return row | ({"best peer's int8 / ours": min(peers) / ms["int8"]} if peers else {})


def main() -> None:
    parser = race_options(__doc__, MODELS, 50, ("litert_torch",))
    parser.add_argument("--layout", choices=("nchw", "nhwc"), default="nchw", help="of the images that files take")
    parser.add_argument("--ops", action="store_true", help="say which ops each file has")
    options = begun(parser)
    rows: Rows = []
    for name in options.models.split(","):
        folder = options.cache / options.layout / name
        folder.mkdir(parents=True, exist_ok=True)
        prepare(name, folder, options)
        if options.ops:
            for file in sorted(folder.glob("*.tflite")):
                print(name, file.stem, dict(ops_in(file).most_common()))
        if not options.prepare_only:
            rows.append(row_of(name, folder, options))
            print(rows[-1], flush=True)
    if rows:
        report("Milliseconds an image on LiteRT, one thread", rows, None)
        leave(options, rows)


if __name__ == "__main__":
    main()
