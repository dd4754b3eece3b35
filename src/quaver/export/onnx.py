"""A program as an ONNX file: quantize and dequantize pairs, int8 weights, a batch of any size."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor, fx

from quaver.errors import EngineError, StageError
from quaver.export.names import quantized_tensors, rounded_name
from quaver.graph.nodes import argument, is_dequantize, is_quantize, op_of, packet
from quaver.int8.rounded_once import limits_of, two
from quaver.passes import ConvertToInt8Pass
from quaver.program import Program, Stage
from quaver.program.views import read
from quaver.silence import silenced

OPSET = 20

_AVERAGES = ("avg_pool2d", "avg_pool3d")
_BIASED = ("Conv", "ConvTranspose", "Gemm")
_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "value": lambda attribute: numpy_helper.to_array(attribute.t),
    "value_float": lambda attribute: np.array(attribute.f, np.float32),
    "value_int": lambda attribute: np.array(attribute.i, np.int64),
}


def model_of(program: Program) -> onnx.ModelProto:
    """The program in ONNX, checked. Inputs have the program's names, and so have its quantized tensors."""
    if program.stage is Stage.PREPARED:
        raise StageError("export: the program still trains. Call quaver.convert first, and export what it gives.")
    if program.stage is Stage.FROZEN:
        program = ConvertToInt8Pass().apply(program)
    module = for_onnx(program)
    with silenced():
        try:
            exported = torch.export.export(module, example(program), dynamic_shapes=(free_sizes(program),), strict=False)
            written = torch.onnx.export(exported, (), dynamo=True, optimize=False, verbose=False, opset_version=OPSET)
        except Exception as error:  # the exporter raises whatever an op's translation happens to raise
            raise EngineError(f"export: the program has no form in ONNX: {_reason(error)}") from error
    assert written is not None
    model = tidied(written.model_proto, program)
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


def for_onnx(program: Program) -> Flat:
    """The evaluation graph with what ONNX has no word for spelled out: zero points per channel, and grids below 8 bits."""
    module = program.graph_module()
    graph = module.graph
    for node in list(graph.nodes):
        if is_dequantize(node) and node.target is torch.ops.quantized_decomposed.dequantize_per_channel.default:
            module.register_buffer(
                f"zeros_{node.name}", torch.zeros_like(read(module, node.args[1].target), dtype=torch.int8)
            )
            with graph.inserting_before(node):
                zeros = graph.get_attr(f"zeros_{node.name}")
            node.args = (*node.args[:2], zeros, *node.args[3:])
        elif is_quantize(node):
            x, scale, zero, low, high, dtype = node.args
            whole = torch.iinfo(dtype)
            if (low, high) != (whole.min, whole.max):
                bounds = [float(np.float32(scale) * (end - zero)) for end in (low, high)]
                limits = limits_of(x) if len(x.users) == 1 else None
                if limits is not None:  # one clamp for both: behind two, ONNX Runtime does not see the convolution
                    bounds, x = [min(max(limit, bounds[0]), bounds[1]) for limit in limits], x.args[0]
                with graph.inserting_before(node):
                    node.update_arg(0, graph.call_function(torch.ops.aten.clamp.default, (x, *bounds)))
        elif node.op == "call_function" and packet(node) in _AVERAGES and argument(node, "divisor_override"):
            spell_out_divisor(graph, node)
        elif node.op == "call_function" and packet(node) == "pad" and argument(node, "mode") == "circular":
            spell_out_wrapping(graph, node)
    module.recompile()
    return Flat(module).eval()


def spell_out_divisor(graph: fx.Graph, node: fx.Node) -> None:
    """An average pool that divides by a number of its own, as one that divides by its window's size and a product.

    The exporter would leave the number out.
    """
    if argument(node, "ceil_mode") or packet(node) != "avg_pool2d":
        raise EngineError(
            f"export: {op_of(node).name!r}: a pool with divisor_override has a form in ONNX only in two dimensions and "
            "without ceil_mode. Leave divisor_override out, and multiply the pool's result instead."
        )
    kernel = two(argument(node, "kernel_size"))
    stride, padding = two(argument(node, "stride") or kernel), two(argument(node, "padding"))
    with graph.inserting_before(node):
        plain = graph.call_function(torch.ops.aten.avg_pool2d.default, (node.args[0], kernel, stride, padding, False, True))
        factor = math.prod(kernel) / argument(node, "divisor_override")
        node.replace_all_uses_with(graph.call_function(torch.ops.aten.mul.Tensor, (plain, factor)))
    graph.erase_node(node)


def spell_out_wrapping(graph: fx.Graph, node: fx.Node) -> None:
    """Circular padding as the tensor between its own last and first slices: OpenVINO has no such padding."""
    value: Any = node.args[0]
    widths = argument(node, "pad")
    with graph.inserting_before(node):
        for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True), start=1):
            last = graph.call_function(torch.ops.aten.slice.Tensor, (value, -axis, -before)) if before else None
            first = graph.call_function(torch.ops.aten.slice.Tensor, (value, -axis, 0, after)) if after else None
            parts = [part for part in (last, value, first) if part is not None]
            value = graph.call_function(torch.ops.aten.cat.default, (parts, -axis))
    node.replace_all_uses_with(value)
    graph.erase_node(node)


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
    fold_biases(graph)
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


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Store every constant, and every cast of one, as an initializer."""
    known = {initializer.name: initializer for initializer in graph.initializer}
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    kept = []
    for node in graph.node:
        value = None
        if node.op_type == "Constant" and node.attribute[0].name in _CONSTANTS:
            value = _CONSTANTS[node.attribute[0].name](node.attribute[0])
        elif node.op_type in ("Cast", "CastLike") and node.input[0] in known:
            to = node.attribute[0].i if node.op_type == "Cast" else types.get(node.input[1])
            if to is not None:
                value = numpy_helper.to_array(known[node.input[0]]).astype(onnx.helper.tensor_dtype_to_np_dtype(to))
        if value is None:
            kept.append(node)
        else:
            known[node.output[0]] = numpy_helper.from_array(value, node.output[0])
            graph.initializer.append(known[node.output[0]])
    refill(graph.node, kept)


def fold_biases(graph: onnx.GraphProto) -> None:
    """Store a bias that nodes compute from constants; leave out the zeros that the exporter computes for want of one."""
    known: dict[str, Any] = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}

    def value(name: str) -> Any:
        """What a tensor always holds; None if it depends on the input."""
        if name not in known and name in makers:
            given = {source: value(source) for source in makers[name].input if source}
            if all(array is not None for array in given.values()):
                (known[name],) = ReferenceEvaluator(makers[name]).run(None, given)
        return known.get(name)

    for node in graph.node:
        computed = node.op_type in _BIASED and len(node.input) == 3 and node.input[2] in makers
        bias = value(node.input[2]) if computed else None
        if bias is not None and bias.any():
            node.input[2] = f"{node.output[0]}.bias"
            graph.initializer.append(numpy_helper.from_array(bias, node.input[2]))
        elif bias is not None:
            del node.input[2]


def drop_unread(graph: onnx.GraphProto) -> None:
    """Leave out nodes and constants that no output depends on."""
    read_by_someone = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read_by_someone.intersection(node.output):
            kept.append(node)
            read_by_someone.update(node.input)
    used = [initializer for initializer in graph.initializer if initializer.name in read_by_someone]
    refill(graph.node, kept[::-1])
    refill(graph.initializer, used)
    refill(graph.value_info, [value for value in graph.value_info if value.name in read_by_someone])


def refill(field: Any, values: list[Any]) -> None:
    """Put these values in the place of what a repeated field holds."""
    del field[:]
    field.extend(values)


def rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Give tensors other names, everywhere they occur; a name that is taken already gets out of the way."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)} - set(names)
    names = names | {name: f"{name}.inner" for name in taken & set(names.values())}
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
