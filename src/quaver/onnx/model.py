"""A program as an ONNX file: quantize and dequantize pairs, int8 weights, a batch of any size."""

import json
import math
import operator
import re
from operator import attrgetter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes.common import ClearMetadataAndDocStringPass, LiftConstantsToInitializersPass, RemoveUnusedNodesPass
from torch import Tensor, fx

from quaver.errors import EngineError, StageError
from quaver.graph.nodes import Facts, argument, calls, clamp_bounds, facts_in, op_of, packet, rank_of
from quaver.graph.patterns import pool_window
from quaver.log_suppression import suppressed_logs
from quaver.onnx.editing import array_of, constant, operand, replace
from quaver.passes import ConvertToInt8Pass
from quaver.program import Program, Stage
from quaver.program.quantized_tensors import quantized_tensors, rounded_name
from quaver.program.views import read

OPSET = 20

_BIASED = ("Conv", "ConvTranspose", "Gemm")


def shared_model(program: Program, shared: dict[str, Any]) -> ir.Model:
    """`model_of` a program, made once for all who write it; a copy for each."""
    if "onnx" not in shared:
        shared["onnx"] = model_of(program)
    model: ir.Model = shared["onnx"].clone()
    return model


def checked_proto(model: ir.Model, origin: dict[str, Any]) -> onnx.ModelProto:
    """The model as a file holds it, with its origin in it."""
    model.metadata_props["quaver"] = json.dumps(origin, sort_keys=True)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def model_of(program: Program) -> ir.Model:
    """The program in ONNX. Inputs have the program's names, and so have its quantized tensors."""
    if program.stage is Stage.PREPARED:
        raise StageError("export: the program still trains. Call quaver.convert first, and export what it gives.")
    if program.stage is Stage.FROZEN:
        program = ConvertToInt8Pass().apply(program)
    module = for_onnx(program)
    with suppressed_logs():
        try:
            exported = torch.export.export(module, example(program), dynamic_shapes=(free_sizes(program),), strict=False)
            written = torch.onnx.export(exported, (), dynamo=True, optimize=False, verbose=False, opset_version=OPSET)
        except Exception as error:  # the exporter raises whatever an op's translation happens to raise
            raise EngineError(f"export: the program has no form in ONNX: {_reason(error)}") from error
    assert written is not None
    return tidied(written.model, program)


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
    outputs: Any = graph.output_node().args[0]
    graph.output_node().args = (tuple(value for value in outputs if isinstance(value, fx.Node)),)  # a file gives tensors
    for node in graph.find_nodes(op="call_function", target=torch.ops.quantized_decomposed.dequantize_per_channel.default):
        zeros = torch.zeros_like(read(module, node.args[1].target), dtype=torch.int8)
        module.register_buffer(f"zeros_{node.name}", zeros)
        with graph.inserting_before(node):
            node.update_arg(2, graph.get_attr(f"zeros_{node.name}"))
    fold_constants(module)
    facts = facts_in(graph)
    for node in list(graph.nodes):
        if facts[node].kind == "quantize":
            x, scale, zero, low, high, dtype = node.args
            whole = torch.iinfo(dtype)
            if (low, high) != (whole.min, whole.max):
                bounds = [float(np.float32(scale) * (end - zero)) for end in (low, high)]
                limits = clamp_bounds(x) if len(x.users) == 1 else None
                if limits is not None:  # one clamp for both: behind two, ONNX Runtime does not see the convolution
                    bounds, x = [min(max(limit, bounds[0]), bounds[1]) for limit in limits], x.args[0]
                with graph.inserting_before(node):
                    node.update_arg(0, graph.call_function(torch.ops.aten.clamp.default, (x, *bounds)))
        elif calls(node, "avg_pool2d", "avg_pool3d") and argument(node, "divisor_override"):
            spell_out_divisor(graph, node)
        elif calls(node, "pad") and argument(node, "mode") == "circular":
            spell_out_wrapping(graph, node)
        elif calls(node, "scaled_dot_product_attention") and rank_of(node) != 4:
            node.target = attention
        elif calls(node, "chunk", "split"):
            node.target, node.args = in_sizes, (node.target, *node.args)
    module.recompile()
    return Flat(module).eval()


def fold_constants(module: fx.GraphModule) -> None:
    """Store what depends on no input as PyTorch computes it: the exporter's form may be another, as of a resized table.

    Left as they are: integers of weights, and what is the same numbers many times.
    """
    constants: dict[fx.Node, Any] = {}
    facts = facts_in(module.graph)
    for node in module.graph.nodes:
        if node.op == "get_attr" and isinstance(value := _attribute(module, node), Tensor):
            constants[node] = value.detach()
        elif is_computable(node, facts) and constants.keys() >= set(node.all_input_nodes):
            args, kwargs = fx.map_arg((node.args, node.kwargs), constants.__getitem__)
            with torch.no_grad():
                constants[node] = node.target(*args, **kwargs)
    for node, value in constants.items():
        if node.op == "get_attr" or not isinstance(value, Tensor) or constants.keys() >= set(node.users):
            continue
        module.register_buffer(f"folded_{node.name}", value.contiguous())
        with module.graph.inserting_before(node):
            folded = module.graph.get_attr(f"folded_{node.name}")
        folded.meta = node.meta
        node.replace_all_uses_with(folded, delete_user_cb=lambda reader: reader not in constants)
    module.graph.eliminate_dead_code()


def _attribute(module: fx.GraphModule, node: fx.Node) -> Any:
    return attrgetter(str(node.target))(module)


def is_computable(node: fx.Node, facts: Facts) -> bool:
    """Whether an op of constants may be computed before the export."""
    op = node.target
    is_pure = op is operator.getitem or (isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable)
    return is_pure and bool(node.all_input_nodes) and facts[node].kind not in WHOLE and packet(node) not in REPEATS


WHOLE = ("quantize", "dequantize", "quantizer")
REPEATS = ("expand", "expand_as", "repeat", "repeat_interleave", "tile", "broadcast_to")


def spell_out_divisor(graph: fx.Graph, node: fx.Node) -> None:
    """An average pool that divides by a number of its own, as one that divides by its window's size and a product.

    The exporter would leave the number out.
    """
    if argument(node, "ceil_mode") or packet(node) != "avg_pool2d":
        raise EngineError(
            f"export: {op_of(node).name!r}: a pool with divisor_override has a form in ONNX only in two dimensions and "
            "without ceil_mode. Leave divisor_override out, and multiply the pool's result instead."
        )
    kernel, stride, padding = pool_window(node)
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


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args: Any, **kwargs: Any
) -> Tensor:
    """Attention over tensors of any rank by that over four dimensions, the only one that the exporter knows."""
    front = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])  # type: ignore[no-untyped-call]

    def in_four(x: Tensor) -> Tensor:
        x = x.expand(*front, *x.shape[-2:])
        return x.unsqueeze(1) if len(front) == 1 else x.flatten(0, -4)

    mask = attn_mask if attn_mask is None or attn_mask.dim() == 2 else in_four(attn_mask)
    result = F.scaled_dot_product_attention(in_four(query), in_four(key), in_four(value), mask, *args, **kwargs)
    return result.reshape(*front, *result.shape[-2:])


def in_sizes(divide: Any, x: Tensor, size: Any, dim: int = 0) -> Any:
    """Chunks and equal parts of a tensor, by the sizes that they have: OpenVINO does not know those of all tensors."""
    return x.split_with_sizes([part.shape[dim] for part in divide(x, size, dim)], dim)


def example(program: Program) -> tuple[tuple[Tensor, ...]]:
    """Zeros in the captured shapes, with a batch that is not 1, which the exporter would take for fixed."""
    return (tuple(program.signature.zeros(2)),)


def free_sizes(program: Program) -> tuple[Any, ...]:
    """Which sizes of the inputs are free: the batch, and sides within what capture found out about them."""
    batch = torch.export.Dim("batch")
    return tuple(
        {axis: torch.export.Dim.AUTO if axis else batch for axis, size in enumerate(leaf.shape) if size is None} or None
        for leaf in program.signature.tensors
    )


def _reason(error: BaseException) -> str:
    """The innermost cause, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


# behind the exporter


def tidied(model: ir.Model, program: Program) -> ir.Model:
    """The exporter's model with constants as initializers, names of ours, and nothing about the machine it was made on."""
    from quaver import __version__

    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    graph = model.graph
    fold_casts(graph)
    fold_biases(graph)
    RemoveUnusedNodesPass()(model)
    ClearMetadataAndDocStringPass()(model)
    inputs = {value: leaf.name for value, leaf in zip(graph.inputs, program.signature.tensors, strict=True)}
    outputs = dict(zip(graph.outputs, program.output_names, strict=True))
    quantized = [node.outputs[0] for node in graph if node.op_type == "QuantizeLinear"]
    titles = dict(zip(quantized, (tensor.name for tensor in quantized_tensors(program)), strict=True))
    whole = {value: f"{title}.integers" for value, title in titles.items()}
    back = {node.outputs[0]: node.inputs[0] for node in graph if node.op_type == "DequantizeLinear"}
    rounded = {value: rounded_name(titles[source]) for value, source in back.items() if source in titles}
    rename(graph, whole | rounded | inputs | outputs)
    name_free_sizes(graph, program)
    for node in graph:
        node.name = f"{node.op_type}:{node.outputs[0].name}"
    model.functions.clear()
    model.producer_name, model.producer_version, graph.name = "quaver", __version__, "program"
    return model


def name_free_sizes(graph: ir.Graph, program: Program) -> None:
    """Call free sizes ``batch``, ``height`` and ``width``, for which the exporter has numbers of its own."""
    names: dict[str, str] = {}
    for place, (value, leaf) in enumerate(zip(graph.inputs, program.signature.tensors, strict=True)):
        number = f"_{place}" if place else ""
        titles = {0: "batch", len(leaf.shape) - 2: f"height{number}", len(leaf.shape) - 1: f"width{number}"}
        for axis in (axis for axis, size in enumerate(leaf.shape) if size is None):
            if value.shape is not None:
                names.setdefault(str(value.shape[axis]), titles[axis])
    if not names:
        return
    symbol = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
        for axis, size in enumerate(value.shape or ()):
            if isinstance(size, ir.SymbolicDim) and size.value is not None and value.shape is not None:
                value.shape[axis] = symbol.sub(lambda match: names[match[0]], size.value)


def fold_casts(graph: ir.Graph) -> None:
    """Store every cast of a constant as a constant."""
    for node in list(graph):
        if node.op_type not in ("Cast", "CastLike") or (value := array_of(node.inputs[0])) is None:
            continue
        to = ir.DataType(node.attributes["to"].as_int()) if node.op_type == "Cast" else operand(node, 1).dtype
        if to is not None:
            replace(node, constant(graph, node.outputs[0].name, value.astype(to.numpy())))


def fold_biases(graph: ir.Graph) -> None:
    """Store a bias that nodes compute from constants; leave out the zeros that the exporter computes for want of one."""
    arrays: dict[ir.Value, Any] = {}

    def computed(value: ir.Value) -> Any:
        """What a tensor always holds; None if it depends on the input."""
        maker = value.producer()
        if maker is None:
            return array_of(value)
        if value not in arrays:
            given = {str(source.name): computed(source) for source in maker.inputs if source is not None}
            fixed = all(array is not None for array in given.values())
            evaluator: Any = ReferenceEvaluator(ir.to_proto(maker)) if fixed else None
            arrays[value] = evaluator.run(None, given)[0] if fixed else None
        return arrays[value]

    for node in graph:
        bias = node.inputs[2] if node.op_type in _BIASED and len(node.inputs) == 3 else None
        values = computed(bias) if bias is not None and bias.producer() is not None else None
        if values is not None and values.any():
            node.replace_input_with(2, constant(graph, f"{node.outputs[0].name}.bias", values))
        elif values is not None:
            node.resize_inputs(2)


def rename(graph: ir.Graph, names: dict[ir.Value, str]) -> None:
    """Give tensors other names; a tensor that has one of these already gets out of the way."""
    taken = set(names.values())
    for value in [*graph.initializers.values(), *(value for node in graph for value in node.outputs)]:
        if value.name in taken and value not in names:
            value.name = f"{value.name}.inner"
    for place, value in enumerate(names):
        value.name = f"renaming.{place}"
    for value, name in names.items():
        value.name = name
