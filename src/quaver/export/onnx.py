"""A program as an ONNX file: quantize and dequantize pairs, int8 weights, a batch of any size."""

from collections import defaultdict
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, fx

from quaver.errors import EngineError, StageError
from quaver.export.names import quantized_tensors, rounded_name
from quaver.int8.lowering import is_dequantize, is_quantize
from quaver.int8.onnxruntime import quantized
from quaver.int8.rounded_once import limits_of
from quaver.passes import ConvertToInt8Pass
from quaver.program import Program, Stage
from quaver.program.views import read
from quaver.silence import silenced

OPSET = 20


def model_of(program: Program, *, all_unsigned: bool = False) -> onnx.ModelProto:
    """The program in ONNX, checked. Inputs have the program's names, and so have its quantized tensors.

    ``all_unsigned``: signed activations, too, are stored as 0 … 255, with a zero point of 128.
    """
    if program.stage is Stage.PREPARED:
        raise StageError("export: the program still trains. Call quaver.convert first, and export what it gives.")
    if program.stage is Stage.FROZEN:
        program = ConvertToInt8Pass().apply(program)
    module = for_onnx(program, all_unsigned)
    with silenced():
        try:
            exported = torch.export.export(module, example(program), dynamic_shapes=(free_sizes(program),), strict=False)
            written = torch.onnx.export(exported, (), dynamo=True, optimize=False, verbose=False, opset_version=OPSET)
        except Exception as error:  # the exporter raises whatever an op's translation happens to raise
            raise EngineError(f"export: the program has no form in ONNX: {_reason(error)}") from error
    assert written is not None
    model = tidied(written.model_proto, program)
    if all_unsigned:
        round_before_clamps(model.graph)
    onnx.checker.check_model(model, full_check=True)
    return model


# before the exporter


class Flat(torch.nn.Module):
    """A graph module that takes its tensors as one tuple, so that any number of inputs has one form."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, tensors: tuple[Tensor, ...]) -> Any:
        """The graph's outputs."""
        return self.module(*tensors)


def for_onnx(program: Program, all_unsigned: bool) -> Flat:
    """The evaluation graph with what ONNX has no word for spelled out: zero points per channel, and grids below 8 bits."""
    module = program.graph_module()
    graph = module.graph
    if all_unsigned:
        drop_idle_clamps(graph)
        shift_signed(graph)
    for node in list(graph.nodes):
        if is_dequantize(node) and node.target is torch.ops.quantized_decomposed.dequantize_per_channel.default:
            module.register_buffer(
                f"zeros_{node.name}", torch.zeros_like(read(program, node.args[1].target), dtype=torch.int8)
            )
            with graph.inserting_before(node):
                zeros = graph.get_attr(f"zeros_{node.name}")
            node.args = (*node.args[:2], zeros, *node.args[3:])
        elif is_quantize(node):
            x, scale, zero, low, high, dtype = node.args
            whole = torch.iinfo(dtype)
            if (low, high) != (whole.min, whole.max):
                bounds = (float(np.float32(scale) * (low - zero)), float(np.float32(scale) * (high - zero)))
                with graph.inserting_before(node):
                    node.update_arg(0, graph.call_function(torch.ops.aten.clamp.default, (x, *bounds)))
    module.recompile()
    return Flat(module).eval()


def drop_idle_clamps(graph: fx.Graph) -> None:
    """Leave out a clamp that the rounding behind it does as well: ReLU6 in front of a range that ends at 6.

    ONNX Runtime looks for a quantize node right behind a convolution. It sees through a clamp only where the range does not
    exceed it by the least bit, and the step, which has 16 significant bits, may make it.
    """
    for node in list(graph.nodes):
        if not is_quantize(node) or (limits := limits_of(node.args[0])) is None or len(node.args[0].users) > 1:
            continue
        clamp, scale, zero, low, high, _ = node.args
        first, last = (float(quantized(torch.tensor(limit), scale, low - zero, high - zero)) for limit in limits)
        if (first, last) == (low - zero, high - zero):
            node.update_arg(0, clamp.args[0])
            graph.erase_node(clamp)


def shift_signed(graph: fx.Graph) -> None:
    """Let signed activations be stored with 128 added: the same steps, as unsigned numbers."""
    for node in graph.nodes:
        if is_quantize(node) and node.args[5] is torch.int8:
            for one in (node, *node.users):
                tensor, scale, zero, low, high, _ = one.args
                one.args = (tensor, scale, zero + 128, low + 128, high + 128, torch.uint8)


def example(program: Program) -> tuple[tuple[Tensor, ...]]:
    """Zeros in the captured shapes, with a batch that is not 1, which the exporter would take for fixed."""
    return (
        tuple(
            torch.zeros([2 if size is None else size for size in leaf.shape], dtype=leaf.dtype)
            for leaf in program.signature.tensors
        ),
    )


def free_sizes(program: Program) -> tuple[Any, ...]:
    """Which sizes of the inputs are free."""
    batch = torch.export.Dim("batch")
    return tuple(
        {axis: batch for axis, size in enumerate(leaf.shape) if size is None} or None for leaf in program.signature.tensors
    )


def _reason(error: BaseException) -> str:
    """The innermost cause, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


# behind the exporter


def tidied(model: onnx.ModelProto, program: Program) -> onnx.ModelProto:
    """The exporter's model with constants as initializers, names of ours, and nothing about the machine it was made on."""
    graph = model.graph
    constants_to_initializers(graph)
    drop_unread(graph)
    inputs = {value.name: leaf.name for value, leaf in zip(graph.input, program.signature.tensors, strict=True)}
    outputs = {
        value.name: "output" if len(graph.output) == 1 else f"output_{index}" for index, value in enumerate(graph.output)
    }
    quantized = [node.output[0] for node in graph.node if node.op_type == "QuantizeLinear"]
    titles = dict(zip(quantized, quantized_tensors(program), strict=True))
    whole = {name: f"{title}.integers" for name, title in titles.items()}
    back = [node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in titles]
    rounded = {node.output[0]: rounded_name(titles[node.input[0]]) for node in back}
    rename(graph, whole | rounded | inputs | outputs)
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
        node.name = f"{node.op_type}:{node.output[0]}"
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del value.metadata_props[:]
        value.doc_string = ""
    del graph.metadata_props[:]
    del model.metadata_props[:]
    del model.functions[:]
    model.producer_name, model.producer_version, graph.name = "quaver", "", "program"
    return model


def round_before_clamps(graph: onnx.GraphProto) -> None:
    """Round a convolution's output before a clamp, too, onto the grid that the clamp's is rounded onto: the same integers.

    ONNX Runtime looks for a quantize node right behind a convolution; a ReLU onto a signed grid would hide it.
    """
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)

    def hides_a_convolution(clamp: onnx.NodeProto) -> bool:
        source = makers.get(clamp.input[0])
        if source is None or source.op_type not in ("Conv", "Gemm") or source.input[1] not in makers:
            return False  # makers: its weight comes from a dequantize node
        return len(readers[clamp.input[0]]) == 1 and [node.op_type for node in readers[clamp.output[0]]] == [
            "QuantizeLinear"
        ]

    kept = []
    for node in graph.node:
        if node.op_type in ("Relu", "Clip") and hides_a_convolution(node):
            (behind,) = readers[node.output[0]]
            whole, rounded = f"{node.input[0]}.whole", f"{node.input[0]}.early"
            kept.append(onnx.helper.make_node("QuantizeLinear", [node.input[0], *behind.input[1:]], [whole], whole))
            kept.append(onnx.helper.make_node("DequantizeLinear", [whole, *behind.input[1:]], [rounded], rounded))
            node.input[0] = rounded
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Store every constant, and every cast of one, as an initializer."""
    known = {initializer.name: initializer for initializer in graph.initializer}
    kept = []
    for node in graph.node:
        value = None
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            value = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "Cast" and node.input[0] in known:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(node.attribute[0].i)
            value = numpy_helper.to_array(known[node.input[0]]).astype(dtype)
        if value is None:
            kept.append(node)
        else:
            known[node.output[0]] = numpy_helper.from_array(value, node.output[0])
            graph.initializer.append(known[node.output[0]])
    del graph.node[:]
    graph.node.extend(kept)


def drop_unread(graph: onnx.GraphProto) -> None:
    """Leave out nodes and constants that no output depends on."""
    read_by_someone = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read_by_someone.intersection(node.output):
            kept.append(node)
            read_by_someone.update(node.input)
    used = [initializer for initializer in graph.initializer if initializer.name in read_by_someone]
    for field, values in ((graph.node, kept[::-1]), (graph.initializer, used)):
        del field[:]  # type: ignore[attr-defined]
        field.extend(values)  # type: ignore[arg-type]
    values = [value for value in graph.value_info if value.name in read_by_someone]
    del graph.value_info[:]
    graph.value_info.extend(values)


def rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Give tensors other names, everywhere they occur; a name that is taken already gets out of the way."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)} - set(names)
    names = names | {name: f"{name}.inner" for name in taken & set(names.values())}
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
