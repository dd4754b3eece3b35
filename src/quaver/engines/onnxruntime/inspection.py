"""Looking inside ONNX Runtime: quantized tensors as further outputs, and what it executed."""

import json
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from quaver.engines.file_graph import FileNode, kinds
from quaver.engines.inspection import WARMUP, ExecutedLayer, Profile, Revealed, Role, executed_sources
from quaver.errors import EngineError
from quaver.files import name_or_content
from quaver.onnx import session
from quaver.runtime.example_batches import random_batch

_DTYPES = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "int8": "i8"}
_PRODUCTS = (
    *("Conv", "FusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"),  # in float
    *("QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger", "DynamicQuantizeMatMul"),
)
_ROLES: dict[str, Role] = {
    **dict.fromkeys(_PRODUCTS, "product"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "Cast"), "rounding"),
    **dict.fromkeys(("ReorderInput", "ReorderOutput"), "reorder"),
}
_KINDS = kinds(
    weighted="Conv ConvTranspose Gemm MatMul",
    rounding="QuantizeLinear",
    passes_on="DequantizeLinear Cast Reshape Transpose Flatten Squeeze Unsqueeze MaxPool Concat Split Slice Identity",
    clamp="Relu Clip",
    sum="Add",
)

_REWRITTEN = re.compile(r"(_token_\d+|_nchwc)+$")
"""What stands behind the name of a node that ONNX Runtime has put in the place of another."""


def reveal(file: Path, names: list[str], threads: int, apart: Collection[str]) -> Revealed:
    """The model with these tensors as further outputs."""
    from quaver.onnx import revealing

    return revealing.reveal(file, names, threads)


def profile(file: Path, threads: int, batch: int, rounds: int) -> Profile:
    """Every kernel that was executed; times are medians."""
    ort = session.engine()
    inputs = random_batch(session.load(file, threads).inputs, batch)
    given = _file_graph(file)
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "rewritten.onnx")
        running = ort.InferenceSession(name_or_content(file), options, providers=["CPUExecutionProvider"])
        feed = {port.name: value for port, value in zip(running.get_inputs(), inputs, strict=True)}
        for _ in range(WARMUP + rounds):
            running.run(None, feed)
        events = json.loads(Path(running.end_profiling()).read_text())
        rewritten = _file_graph(Path(options.optimized_model_filepath))
    calls = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            calls[event["name"].removesuffix("_kernel_time")].append(event)
    graph = {node.name: [source.name for source in node.inputs] for node in rewritten}
    return Profile([_layer(name, events, graph, calls) for name, events in calls.items()], given)


def _layer(name: str, events: list[Any], graph: dict[str, list[str]], calls: dict[str, list[Any]]) -> ExecutedLayer:
    facts, file_name = events[0]["args"], _REWRITTEN.sub("", name)
    return ExecutedLayer(
        name=name,
        type=facts["op_name"],
        role=_ROLES.get(facts["op_name"], "other"),
        precision=_dtype(facts["input_type_shape"]),
        writes=_dtype(facts["output_type_shape"]),
        microseconds=statistics.median(event["dur"] for event in events[WARMUP:]),
        reads=executed_sources(graph.get(name, []), graph, calls),
        origins=(file_name,),
        file_name=file_name,
    )


def _dtype(shapes: list[dict[str, Any]]) -> str:
    first = next(iter(shapes[0]), "") if shapes else ""
    return _DTYPES.get(first, first)


def _file_graph(path: Path) -> list[FileNode]:
    try:
        import onnx
    except ImportError as error:
        raise EngineError("onnx is not installed: the layers of .onnx files are read with it. pip install onnx.") from error
    graph = onnx.load(path).graph
    types = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    made = {value.name: FileNode(value.name, "Constant", "constant", types[value.data_type]) for value in graph.initializer}
    nodes = []
    for node in graph.node:
        read = FileNode(node.name or node.output[0], node.op_type, _KINDS.get(node.op_type, "other"))
        read.connect(made.setdefault(name, FileNode(name, "Parameter", "other")) for name in node.input if name)
        made.update(dict.fromkeys(node.output, read))
        nodes.append(read)
    return nodes
