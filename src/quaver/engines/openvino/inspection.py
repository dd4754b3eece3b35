"""Looking inside OpenVINO: quantized tensors as further outputs, and what the plugin executed."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from quaver.engines.file_graph import FileNode, kinds
from quaver.engines.inspection import WARMUP, ExecutedLayer, ModelPart, Profile, Revealed, Role, executed_sources
from quaver.engines.openvino.editing import CONVOLUTIONS, MOVES, is_rounded, is_with_constant
from quaver.engines.openvino.runner import OpenVINORunner, ov, read
from quaver.program.quantized_tensors import rounded_name
from quaver.runtime.example_batches import random_batch

_ROLES: dict[str, Role] = {
    **dict.fromkeys(("Convolution", "Deconvolution", "FullyConnected", "MatMul"), "product"),
    **dict.fromkeys(("FakeQuantize", "Convert"), "rounding"),
    "Reorder": "reorder",
}
_KINDS = kinds(
    weighted="Convolution GroupConvolution ConvolutionBackpropData GroupConvolutionBackpropData MatMul",
    rounding="FakeQuantize",
    # Subtract and Multiply, by constants, turn integers back into steps
    passes_on="Convert Subtract Multiply Reshape Transpose Squeeze Unsqueeze MaxPool Concat Split VariadicSplit Slice "
    "StridedSlice",
    clamp="Relu Clamp",
    sum="Add",
    constant="Constant",
)


def reveal(file: Path, names: list[str], threads: int, apart: Collection[str]) -> Revealed:
    """The model with these tensors as further outputs. They are read behind their dequantize nodes, which engines fuse.

    A shortcut is added inside a convolution only while nobody else wants it, and which of two rounded tensors keeps its
    steps when they are added or multiplied depends on who else reads either, before or behind a move (seen in 2026.4).
    Those in ``apart`` are asked for one by one, each of a model that ends there, so that what is seen is what runs; not
    layers' that are moved first. The others are not shown, but for those that are added to a matrix product: that is a
    kernel of its own, whoever wants them.
    """
    model = read(file)
    ports = {name: port for op in model.get_ops() for port in op.outputs() for name in port.get_names()}
    rounded = {name: rounded_name(name) for name in names}
    there = {name: ports[title] for name, title in rounded.items() if title in ports}
    joined = {name: [*filter(_is_joined, port.get_target_inputs())] for name, port in there.items()}
    alone = [name for name, port in there.items() if name in apart and joined[name] and _is_seen_alone(port)]
    ends = {name: _ending(there[name], there) for name in alone}  # before there are further models, which read tensors, too
    parts = [
        ModelPart(0, {name: 0}, OpenVINORunner(ov.Model(ports, model.get_parameters(), name), threads))
        for name, ports in ends.items()
    ]
    rest, own = [name for name in there if not joined[name]], len(model.outputs)
    model.add_outputs([rounded[name] for name in rest])
    shown = {name: place for place, output in enumerate(model.outputs) for name in output.get_names()}
    places = {name: shown[rounded[name]] for name in rest}
    return Revealed([*parts, ModelPart(own, places, OpenVINORunner(model, threads))], set(there))


def _stored(port: Any, rounded: dict[str, Any]) -> Any:
    """A shortcut as integers: what a convolution gives as floats it rounds with 128 added, even if nobody else wants that.

    A pool over windows of one keeps it from being floats, and changes nothing. It is floats in any case where both operands
    of the sum are rounded, and where others read what is rounded: 128 is added then.
    """
    known, op = {name for other in rounded.values() for name in other.get_names()}, port.get_node()
    sums = [reader.get_node() for reader in port.get_target_inputs() if reader.get_node().get_type_name() == "Add"]
    is_apart = any(all(known & value.get_names() for value in total.input_values()) for total in sums)
    is_alone = op.get_type_name() == "FakeQuantize" and len(op.input_value(0).get_target_inputs()) == 1
    if not sums or is_apart or not is_alone or port.get_partial_shape().rank != 4:
        return port
    ones, none = [1, 1], [0, 0]
    return ov.opset13.max_pool(port, ones, ones, none, none, ones).output(0)


def _ending(port: Any, rounded: dict[str, Any]) -> list[Any]:
    """A rounded tensor; and what is rounded, where others read that too: a layer would else round it by itself."""
    source = _source(port)
    is_shared = len(source.get_target_inputs()) > 1 and not is_rounded(source)
    return [port, source] if is_shared else [_stored(port, rounded)]


def _is_seen_alone(port: Any) -> bool:
    """Whether a rounded tensor is added or multiplied as it is, or no layer rounds it, nor was it rounded before."""
    source = _source(port)
    is_direct = any(_is_join(reader.get_node()) for reader in port.get_target_inputs())
    return is_direct or not (is_rounded(source) or _maker(source) in ("MatMul", *CONVOLUTIONS))


def _source(port: Any) -> Any:
    """What is rounded to a tensor."""
    op = port.get_node()
    while op.get_type_name() != "FakeQuantize":
        op = op.input_value(0).get_node()
    return op.input_value(0)


def _is_joined(reader: Any) -> bool:
    """Whether a tensor is read by a sum that another op may compute along with its own: not that of a matrix product.

    Or by nobody but a sum or a product of rounded tensors, perhaps moved and rounded again before.
    """
    op = reader.get_node()
    if _is_join(op):
        values = op.input_values()
        is_sum = op.get_type_name() == "Add" and not any(_maker(value) == "MatMul" for value in values)
        return is_sum or (_is_read_once(reader) and all(map(is_rounded, values)))
    passes = op.get_type_name() in ("FakeQuantize", *MOVES) or is_with_constant(op)
    further = [port for output in op.outputs() for port in output.get_target_inputs()]
    return passes and _is_read_once(reader) and len(further) == 1 and _is_joined(further[0])


def _is_read_once(reader: Any) -> bool:
    return len(reader.get_source_output().get_target_inputs()) == 1


def _is_join(op: Any) -> bool:
    """Whether an op adds or multiplies two tensors."""
    return op.get_type_name() in ("Add", "Multiply") and not is_with_constant(op)


def _maker(value: Any) -> str:
    """What type of op gives a tensor, with what is done to it element by element by constants, in another shape or not."""
    op = value.get_node()
    while op.get_type_name() == "Reshape" or is_with_constant(op):
        op = op.input_value(0).get_node()
    return str(op.get_type_name())


def profile(file: Path, threads: int, batch: int, rounds: int) -> Profile:
    """Every layer that the plugin executed; times are means, for it tells no single ones."""
    model = read(file)
    given = _file_graph(model)
    run = OpenVINORunner(model, threads, PERF_COUNT="YES")
    counted = _counted(run, random_batch(run.inputs, batch), rounds)
    facts: dict[str, dict[str, str]] = {}
    sources: dict[str, list[str]] = {}
    for op in run.request.get_compiled_model().get_runtime_model().get_ordered_ops():
        name = op.get_friendly_name()
        facts[name] = {key: str(value.astype(str)) for key, value in op.get_rt_info().items() if hasattr(value, "astype")}
        sources[name] = [port.get_source_output().get_node().get_friendly_name() for port in op.inputs()]
    constant: set[str] = set()
    for name, fact in facts.items():
        if fact.get("layerType") == "Const" or (sources[name] and constant.issuperset(sources[name])):
            constant.add(name)
    times = {
        name: counted.get(name, 0.0)
        for name, fact in facts.items()
        if name in counted or (name not in constant and _has_kernel(fact))
    }
    return Profile([_layer(name, facts[name], times, sources) for name in times], given)


def _has_kernel(facts: dict[str, str]) -> bool:
    """Whether a layer runs though no time was counted: OpenVINO says so of all that takes less than a microsecond.

    A reorder has a kernel in any case, also where it moves nothing.
    """
    kernel = facts.get("primitiveType", "unknown")
    return not kernel.startswith("unknown") and _ROLES.get(facts.get("layerType", "")) != "reorder"


def _layer(name: str, facts: dict[str, str], times: dict[str, float], sources: dict[str, list[str]]) -> ExecutedLayer:
    kind = facts.get("layerType", "")
    return ExecutedLayer(
        name=name,
        type=kind,
        role=_ROLES.get(kind, "other"),
        precision=facts.get("runtimePrecision", ""),
        writes=facts.get("outputPrecisions", "").split(",")[0],
        microseconds=times[name],
        reads=executed_sources(sources[name], sources, times),
        origins=tuple(_plain(origin) for origin in facts.get("originalLayersNames", "").split(",") if origin),
        layout=facts.get("outputLayouts", "").split(",")[0],
        kernel=facts.get("primitiveType", ""),
        file_name=_plain(name),
    )


def _counted(run: OpenVINORunner, inputs: list[Any], rounds: int) -> dict[str, float]:
    """Microseconds of layers that took one or more: OpenVINO's counters without what they had counted after the warm-up.

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


def _file_graph(model: Any) -> list[FileNode]:
    nodes: dict[str, FileNode] = {}
    for op in model.get_ordered_ops():
        node = FileNode(op.get_friendly_name(), op.get_type_name(), _KINDS.get(op.get_type_name(), "other"))
        if op.get_output_size():
            node.dtype = op.get_output_element_type(0).get_type_name()
        node.connect(nodes[port.get_source_output().get_node().get_friendly_name()] for port in op.inputs())
        nodes[node.name] = node
    for node in nodes.values():
        node.name = _plain(node.name)
    return list(nodes.values())


def _plain(name: str) -> str:
    """A node's name without what OpenVINO puts behind it where it reads one node as several."""
    return re.sub(r"(/duplicated)+$", "", name.split("/WithoutBiases")[0])
