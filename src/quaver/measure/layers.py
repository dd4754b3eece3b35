"""What an engine really executes, layer by layer: in which precision, and for how long. The engine itself is asked."""

import json
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quaver.errors import EngineError
from quaver.files import name_or_content
from quaver.measure.file_graph import ROUNDS, Node, onnx_graph, openvino_graph
from quaver.measure.latency import random_batch
from quaver.operators import WEIGHTED as WEIGHTED_OPS
from quaver.program.reason import ComputedWith
from quaver.program.record import why_in
from quaver.runtime.artefact import provenance

INT8 = frozenset({"i8", "u8"})
FLOAT = frozenset({"f32", "bf16", "f16", "f64"})
PRODUCTS = frozenset(
    {
        *("Convolution", "Deconvolution", "FullyConnected", "MatMul"),  # OpenVINO's words
        *("Conv", "FusedConv", "ConvTranspose", "Gemm", "FusedGemm", "FusedMatMul"),  # ONNX Runtime's, float
        *("QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger", "DynamicQuantizeMatMul"),
    }
)
"""Convolutions and matrix products: the layers that int8 is for."""

ROUNDING = frozenset({"FakeQuantize", "Convert", "QuantizeLinear", "DequantizeLinear", "Cast"})
REORDERS = frozenset({"Reorder", "ReorderInput", "ReorderOutput"})
WARMUP = 2
"""Calls before times count: the first build the kernels."""


@dataclass(frozen=True)
class Layer:
    """A layer as the engine executed it.

    ``precision`` is what it computed on, ``writes`` what its result is stored as. ``reads`` are the layers whose results it
    read, ``ops`` the program's ops it computes, as far as names tell. ``given`` is where the layer stands in the file;
    None for what the engine added by itself.
    """

    name: str
    type: str
    precision: str
    writes: str
    microseconds: float
    share: float
    reads: tuple[str, ...]
    ops: tuple[str, ...] = ()
    layout: str = ""
    kernel: str = ""
    given: Node | None = None

    @property
    def is_int8(self) -> bool:
        """Did it compute on 8-bit integers?"""
        return self.precision in INT8 and self.type not in ROUNDING | REORDERS

    @property
    def is_reorder(self) -> bool:
        """Does it only store a tensor another way, as no one but the engine asked for?"""
        return self.type in REORDERS or (self.type == "Transpose" and self.given is None)

    @property
    def is_float(self) -> bool:
        """Did it compute in float? Not what only looks at a tensor's shape."""
        computes = self.type not in ROUNDING and not self.is_reorder and self.writes in FLOAT | INT8
        return computes and self.precision in FLOAT


def layers(path: Path, engine: str, *, threads: int = 1, batch: int = 1, rounds: int = 20) -> list[Layer]:
    """Every layer that the engine executed for a random batch, in its order.

    Times are over ``rounds`` calls: medians from ONNX Runtime, means from OpenVINO, which tells no single ones.
    """
    if engine == "openvino":
        return _with_shares(_openvino(path, threads, batch, rounds))
    if engine == "onnxruntime":
        return _with_shares(_onnxruntime(path, threads, batch, rounds))
    raise EngineError(f"{path}: {engine} does not tell what it executes. Layers are shown for openvino and onnxruntime.")


def titles(executed: list[Layer]) -> dict[str, str]:
    """What to call each layer: the program's names where they are known, ``from → to`` for a reorder."""
    found = {layer.name: " + ".join(layer.ops) or _tensor(_plain(layer.name)) for layer in executed}
    for layer in executed:
        if layer.is_reorder:
            before = [found[name] for name in layer.reads[:1]] or ["the input"]
            behind = [found[other.name] for other in executed if layer.name in other.reads][:1] or ["the output"]
            found[layer.name] = f"{before[0]} → {behind[0]}"
    return found


def products_in_int8(executed: Iterable[Layer]) -> tuple[int, int]:
    """How many convolutions and matrix products ran in int8, and how many there are."""
    products = [layer for layer in executed if layer.type in PRODUCTS]
    return sum(layer.is_int8 for layer in products), len(products)


def totals(executed: Iterable[Layer]) -> list[dict[str, Any]]:
    """Time by type and precision, the longest first."""
    groups: dict[tuple[str, str], list[Layer]] = defaultdict(list)
    for layer in executed:
        groups[layer.type, layer.precision].append(layer)
    rows = [
        {
            "type": kind,
            "precision": precision,
            "layers": len(group),
            "microseconds": sum(layer.microseconds for layer in group),
            "share": sum(layer.share for layer in group),
        }
        for (kind, precision), group in groups.items()
    ]
    return sorted(rows, key=lambda row: -float(str(row["microseconds"])))


def _with_shares(executed: list[Layer]) -> list[Layer]:
    whole = sum(layer.microseconds for layer in executed) or 1.0
    return [replace(layer, share=layer.microseconds / whole) for layer in executed]


# OpenVINO


def _openvino(path: Path, threads: int, batch: int, rounds: int) -> list[Layer]:
    from quaver.runtime.openvino import OpenVINORunner, read

    model = read(path)
    names = _Names(openvino_graph(model), path)
    run = OpenVINORunner(model, threads, PERF_COUNT="YES")
    inputs = random_batch(run.inputs, batch)
    times = _counted(run, inputs, rounds)
    nodes = {}
    for op in run.request.get_compiled_model().get_runtime_model().get_ordered_ops():
        facts = {key: str(value.astype(str)) for key, value in op.get_rt_info().items() if hasattr(value, "astype")}
        sources = [port.get_source_output().get_node().get_friendly_name() for port in op.inputs()]
        nodes[op.get_friendly_name()] = facts, sources
    executed = []
    for name, (facts, sources) in nodes.items():
        if name not in times:
            continue
        origins = [original for original in facts.get("originalLayersNames", "").split(",") if original]
        executed.append(
            Layer(
                name=name,
                type=facts.get("layerType", ""),
                precision=facts.get("runtimePrecision", ""),
                writes=facts.get("outputPrecisions", "").split(",")[0],
                microseconds=times[name],
                share=0.0,
                reads=_executed_sources(sources, {name: sources for name, (_, sources) in nodes.items()}, times),
                ops=names.ops(origins, facts.get("layerType", "")),
                layout=facts.get("outputLayouts", "").split(",")[0],
                kernel=facts.get("primitiveType", ""),
                given=names.given(origins, facts.get("layerType", "")),
            )
        )
    return executed


def _counted(run: Any, inputs: list[Any], rounds: int) -> dict[str, float]:
    """Microseconds of every executed layer: OpenVINO's counters without what they had counted after the warm-up.

    A counter is the average over all calls so far, and the first call, which builds the kernels, takes as long as hundreds.
    """

    def averages(calls: int) -> dict[str, float]:
        for _ in range(calls):
            run(*inputs)
        entries = run.request.get_profiling_info()
        return {
            entry.node_name: entry.real_time.total_seconds() * 1e6 for entry in entries if entry.status == entry.EXECUTED
        }

    first = averages(WARMUP)
    last = averages(rounds)
    calls = WARMUP + rounds
    return {name: max(calls * value - WARMUP * first.get(name, 0.0), 0.0) / rounds for name, value in last.items()}


def _executed_sources(sources: list[str], graph: dict[str, list[str]], executed: Iterable[str]) -> tuple[str, ...]:
    """The layers whose results arrive, looking through what takes no time (a reshape in place) and past constants."""
    found: dict[str, None] = {}
    for name in sources:
        if name in executed:
            found[name] = None
        else:
            found.update(dict.fromkeys(_executed_sources(graph.get(name, []), graph, executed)))
    return tuple(found)


# ONNX Runtime

_DTYPES = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "int8": "i8"}


def _onnxruntime(path: Path, threads: int, batch: int, rounds: int) -> list[Layer]:
    from quaver.runtime.onnxruntime import engine, load

    ort = engine()
    inputs = random_batch(load(path, threads).inputs, batch)
    names = _Names(onnx_graph(path), path)
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "rewritten.onnx")
        session = ort.InferenceSession(name_or_content(path), options, providers=["CPUExecutionProvider"])
        feed = {port.name: value for port, value in zip(session.get_inputs(), inputs, strict=True)}
        for _ in range(WARMUP + rounds):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
        rewritten = onnx_graph(Path(options.optimized_model_filepath))
    calls = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            calls[event["name"].removesuffix("_kernel_time")].append(event)
    graph = {node.name: [source.name for source in node.inputs] for node in rewritten}
    executed = []
    for name, events in calls.items():
        facts = events[0]["args"]
        executed.append(
            Layer(
                name=name,
                type=facts["op_name"],
                precision=_dtype(facts["input_type_shape"]),
                writes=_dtype(facts["output_type_shape"]),
                microseconds=statistics.median(event["dur"] for event in events[WARMUP:]),
                share=0.0,
                reads=_executed_sources(graph.get(name, []), graph, calls),
                ops=names.ops([name], facts["op_name"]),
                given=names.given([name], facts["op_name"]),
            )
        )
    return executed


def _dtype(shapes: list[dict[str, Any]]) -> str:
    first = next(iter(shapes[0]), "") if shapes else ""
    return _DTYPES.get(first, first)


# names


class _Names:
    """From the names an engine gives its layers to the file's nodes, and to the program's ops where provenance is known.

    A convolution is known by its weights, any other layer by the quantized tensor that it writes.
    """

    def __init__(self, nodes: list[Node], path: Path) -> None:
        self.nodes = {_plain(node.name): node for node in reversed(nodes) if node.type != "Constant"}
        self.known: dict[str, str] = {}
        records = provenance(path).get("ops", [])
        self._by_quantized_tensors(nodes, {record["name"]: record for record in records})
        self._by_weights(nodes, records)

    def _by_quantized_tensors(self, nodes: list[Node], records: dict[str, Any]) -> None:
        for node in nodes:
            if node.type not in ROUNDS or not node.inputs:
                continue
            # in an ONNX file that OpenVINO reads, the node's name goes to the conversion behind it
            named = [_tensor(_plain(one.name)) for one in (node, *node.readers)]
            tensor = next((name for name in named if name in records), None)
            if tensor is None:
                continue
            source = node.inputs[0]
            self.known[_plain(source.name)] = tensor
            while source.inputs and source.type not in ROUNDS and source.weight() is None:
                source = source.inputs[0]
            why = why_in(records[tensor])
            if isinstance(why, ComputedWith) and source.weight() is not None:
                self.known[_plain(source.name)] = why.host

    def _by_weights(self, nodes: list[Node], records: list[Any]) -> None:
        readers = defaultdict(list)
        for node in nodes:
            if weight := node.weight():
                readers[weight.name.removeprefix("module.").rpartition(".")[0]].append(node)
        for scope, several in readers.items():
            ops = [op["name"] for op in records if op["scope"] == scope and op["type"] in WEIGHTED_OPS | {"matmul"}]
            if len(ops) == len(several):
                self.known.update(zip((_plain(node.name) for node in several), ops, strict=True))

    def ops(self, origins: list[str], kind: str) -> tuple[str, ...]:
        """The ops behind an engine's list of nodes."""
        product = self.given(origins, kind)
        names = [*([product.name] if product is not None else []), *origins]
        return tuple(dict.fromkeys(self.known[name] for name in map(_plain, names) if name in self.known))

    def given(self, origins: list[str], kind: str) -> Node | None:
        """The first of an engine's list of nodes that the file has; for a product, the one with the weights."""
        found = [self.nodes[name] for name in map(_plain, origins) if name in self.nodes]
        if kind in PRODUCTS:
            for node in found:
                while node.is_bias_or_clamp() and node.inputs:
                    node = node.inputs[0]
                if node.weight() is not None:
                    return node
        return found[0] if found else None


def _plain(name: str) -> str:
    """A node's name without what `quaver.export` puts before it (its type), and engines behind it."""
    without_type = re.sub(r"^\w+:", "", name.split("/WithoutBiases")[0])
    return re.sub(r"(_token_\d+|_nchwc|/duplicated)+$", "", without_type)


def _tensor(name: str) -> str:
    """A quantized tensor's name from that of the node that rounds it."""
    return re.sub(r"\.(rounded|integers)$", "", name)
