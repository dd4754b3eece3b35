"""Does TensorRT compute what the simulation computes? Networks of the zoo, built, run and compared where it is installed.

    python benchmarks/tensorrt.py                                 the networks below, random weights, on noise
    python benchmarks/tensorrt.py --program int8 --file tensorrt/model.onnx --images 256

Needs ``pip install tensorrt`` (10 or later) and an NVIDIA GPU; without them it says so and ends. Each network is quantized
for the target, exported, and built with an optimization profile for its free batch. Printed: how many of the engine's layers
read or write int8 (of those that its inspector tells), how many images get another class than in the simulation, and the
largest difference of outputs in steps (their largest value / 127). TensorRT adds products in 32-bit integers, as the
simulation does, and fuses float ops in an order of its own: an integer next to a tie may be another, so differences of some
steps are the last bit of a rounding amplified by an untrained network, and a class that differs is to be looked into.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import quaver
from measure import Rows, arguments, report
from quaver.export import form_for
from quaver.export.integers import simulation
from quaver.models import build
from quaver.program import Program

NETWORKS = "mobilenet_v1,mobilenet_v2,mobilenet_v3_small,resnet20"


def installed() -> Any:
    """The tensorrt package; in words what is missing. This script has its name, and Python looks beside it first."""
    kept, sys.path[:] = (
        sys.path[:],
        [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent],
    )
    try:
        package = importlib.import_module("tensorrt")
    except ImportError:
        sys.exit("TensorRT is not installed: nothing was built. pip install tensorrt, on a machine with an NVIDIA GPU.")
    finally:
        sys.path[:] = kept
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU that torch can use: TensorRT builds and runs engines on one. Nothing was built.")
    return package


class Engine:
    """An ONNX file as TensorRT builds it, for batches of up to so many images."""

    def __init__(self, trt: Any, file: Path, most: int) -> None:
        logger = trt.Logger(trt.Logger.WARNING)
        builder = trt.Builder(logger)
        strongly_typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # later versions know no other
        network = builder.create_network(0 if strongly_typed is None else 1 << int(strongly_typed))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse(file.read_bytes()):
            sys.exit(f"{file}: the parser refuses it: {[str(parser.get_error(k)) for k in range(parser.num_errors)]}")
        config = builder.create_builder_config()
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        profile = builder.create_optimization_profile()
        for place in range(network.num_inputs):
            port = network.get_input(place)
            least, largest = ([size if free < 0 else free for free in port.shape] for size in (1, most))
            profile.set_shape(port.name, least, largest, largest)
        config.add_optimization_profile(profile)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            sys.exit(f"{file}: the builder refuses it; the log above says why.")
        self.engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        self.context = self.engine.create_execution_context()
        names = [self.engine.get_tensor_name(place) for place in range(self.engine.num_io_tensors)]
        is_input = [self.engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names]
        self.inputs = [name for name, given in zip(names, is_input, strict=True) if given]
        self.outputs = [name for name, given in zip(names, is_input, strict=True) if not given]
        information = self.engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        self.layers: list[Any] = json.loads(information).get("Layers", [])

    def run(self, images: Tensor) -> Tensor:
        """The first output."""
        given = images.cuda().contiguous()
        self.context.set_input_shape(self.inputs[0], tuple(given.shape))
        self.context.set_tensor_address(self.inputs[0], given.data_ptr())
        shapes = {name: tuple(self.context.get_tensor_shape(name)) for name in self.outputs}
        results = {name: torch.empty(shape, device="cuda") for name, shape in shapes.items()}
        for name, result in results.items():
            self.context.set_tensor_address(name, result.data_ptr())
        stream = torch.cuda.current_stream()
        self.context.execute_async_v3(stream.cuda_stream)
        stream.synchronize()
        return results[self.outputs[0]].cpu()

    def in_int8(self) -> str:
        """How many of its layers read or write int8, of how many that say what they are."""
        told = [json.dumps(layer) for layer in self.layers if isinstance(layer, dict)]
        return f"{sum('Int8' in layer or 'INT8' in layer for layer in told)} of {len(told)}"


def trained(name: str, size: int) -> Program:
    """A network of the zoo with random weights, its ranges found on noise."""
    torch.manual_seed(0)
    shape = (8, 3, size, size)
    qat = quaver.quant_aware(
        build(name, num_classes=10), {"target": "tensorrt"}, example_inputs=(torch.randn(shape),)
    ).train()
    for _ in range(4):
        qat(torch.randn(shape))
    return quaver.convert(qat)


def compared(trt: Any, program: Program, file: Path, images: Tensor) -> dict[str, object]:
    """What the engine makes of the images, beside what the simulation makes of them."""
    engine = Engine(trt, file, len(images))
    got = engine.run(images)
    expected = simulation(form_for(program, quaver.engines.ENGINES["tensorrt"]), inside=False).run(images).outputs[0]
    step = float(expected.abs().max()) / 127
    return {
        "layers in int8": engine.in_int8(),
        "images": len(images),
        "other class": int((got.flatten(1).argmax(1) != expected.flatten(1).argmax(1)).sum()),
        "steps": float((got - expected).abs().max()) / step,
    }


def main() -> None:
    options = arguments(__doc__, networks=NETWORKS, size=32, images=64, program="", file="")
    trt = installed()
    rows: Rows = []
    if options.program:
        program = quaver.load(options.program)
        shape = [options.images if size is None else size for size in program.signature.tensors[0].shape]
        rows.append({"network": options.file} | compared(trt, program, Path(options.file), torch.randn(shape)))
    for name in () if options.program else options.networks.split(","):
        program = trained(name, options.size)
        with tempfile.TemporaryDirectory() as folder:
            file = quaver.export(program, folder, target="tensorrt")
            images = torch.randn(options.images, 3, options.size, options.size)
            rows.append({"network": name} | compared(trt, program, file, images))
        print(rows[-1], flush=True)
    report(f"Files of Quaver on TensorRT {trt.__version__}", rows, options.json)


if __name__ == "__main__":
    main()
