"""What a mobile program's graph must look like for XNNPACK to take it, with the same integers at every tensor.

Ops are handed to XNNPACK by pattern: ``dequantize → op → quantize`` runs in int8, everything else in float. XNNPACK
knows one grid, −128 … 127, and does not read the bounds that a quantize op carries.
"""

import math
import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from quaver.graph.annotation import notes_of
from quaver.graph.nodes import (
    activation_inputs,
    argument,
    clamp_bounds,
    facts,
    is_dequantize,
    is_op,
    is_stored,
    op_of,
    packet,
)
from quaver.graph.patterns import is_rounded
from quaver.int8.kernels import fixed_integers
from quaver.int8.requantize import fitted
from quaver.operators import packets_of
from quaver.passes.quantized_ops import pair, quantized
from quaver.program.views import value_of
from quaver.xnnpack.lowering import pool_of, weight_in_int8

aten = torch.ops.aten

LOW, HIGH = -128, 127
_MATRIX_PRODUCTS = packets_of("matrix product")


def for_xnnpack(module: fx.GraphModule, example: tuple[Tensor, ...]) -> None:
    """Rewrite the graph in place until XNNPACK's patterns match."""
    shapes(module, example)
    for names, rewrite in _REWRITES:
        for node in list(module.graph.nodes):
            if node.op == "call_function" and packet(node) in names:
                with module.graph.inserting_before(node):
                    rewrite(module, node)
        module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()


def shapes(module: fx.GraphModule, example: tuple[Tensor, ...]) -> list[tuple[int, ...]]:
    """The shapes of the outputs for these inputs; those of all nodes stay in their ``meta["val"]``."""
    outputs = FakeTensorProp(module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*example)
    return [tuple(output.shape) for output in outputs]


def slice_up(module: fx.GraphModule, node: fx.Node) -> None:
    """The parts of a split as slices, which XNNPACK has."""
    dim, parts = argument(node, "dim"), node.meta["val"]
    boundaries = [0]
    for part in parts:
        boundaries.append(boundaries[-1] + part.shape[dim])
    for reader in list(node.users):
        if reader.target is operator.getitem:
            first = int(reader.args[1]) % len(parts)  # type: ignore[arg-type]
            part = module.graph.call_function(
                aten.slice.Tensor, (node.args[0], dim, boundaries[first], boundaries[first + 1])
            )
            part.meta = node.meta | reader.meta  # the op's name, the part's shape
            reader.replace_all_uses_with(part)


def pool_plainly(module: fx.GraphModule, node: fx.Node) -> None:
    """An adaptive pool as a plain one, where all its windows are alike. A global average is a mean, which XNNPACK has."""
    tops = [node] if packet(node) == "adaptive_avg_pool2d" else [user for user in node.users if user.args[1] == 0]
    have, want = node.args[0].meta["val"].shape[-2:], tops[0].meta["val"].shape[-2:]  # type: ignore[union-attr]
    if any(a % b for a, b in zip(have, want, strict=True)) or (tops == [node] and tuple(want) == (1, 1)):
        return
    kernel = [a // b for a, b in zip(have, want, strict=True)]
    target = aten.avg_pool2d.default if tops == [node] else aten.max_pool2d.default
    for top in tops:
        pool = module.graph.call_function(target, (node.args[0], kernel, kernel))
        pool.meta = node.meta | top.meta
        top.replace_all_uses_with(pool)


def pad_finitely(module: fx.GraphModule, node: fx.Node) -> None:
    """Pad with the largest number instead of infinity, which ExecuTorch cannot write down."""
    value = argument(node, "value")
    if isinstance(value, float) and math.isinf(value):
        finite = math.copysign(torch.finfo(torch.float32).max, value)
        widths = argument(node, "pad")
        padded = module.graph.call_function(aten.constant_pad_nd.default, (node.args[0], widths, finite))
        padded.meta = node.meta
        node.replace_all_uses_with(padded)


def convolve(module: fx.GraphModule, node: fx.Node) -> None:
    """An average pool as a depthwise convolution with weights of 1 and a step of 1/divisor: XNNPACK's pool is float."""
    pool = pool_of(node)
    if pool is None or not is_dequantize(node.args[0]) or not is_rounded(node) or node.meta["val"].dim() != 4:
        return
    kernel, stride, padding, divisor = pool
    channels = node.meta["val"].shape[1]
    weight = constant(module, f"ones_{channels}_{kernel[0]}_{kernel[1]}", torch.ones(channels, 1, *kernel, dtype=torch.int8))
    whole = (weight, 1 / divisor, 0, LOW, HIGH, torch.int8)
    dequantized = module.graph.call_function(quantized.dequantize_per_tensor.default, whole)
    arguments = (node.args[0], dequantized, None, stride, padding, [1, 1], channels)
    convolution = module.graph.call_function(aten.conv2d.default, arguments)
    convolution.meta = node.meta
    node.replace_all_uses_with(convolution)


def to_linear(module: fx.GraphModule, node: fx.Node) -> None:
    """A matrix product with a weight as a linear layer, which XNNPACK has."""
    weight = weight_in_int8(node)
    if weight is None:
        return
    stored = constant(module, f"{node.name}_transposed", value_of(module, weight.args[0]).t().contiguous())
    dequantized = module.graph.call_function(weight.target, (stored, *weight.args[1:]))  # type: ignore[arg-type]
    linear = module.graph.call_function(aten.linear.default, (node.args[0], dequantized))
    linear.meta = node.meta
    node.replace_all_uses_with(linear)


def spell_out_weight(module: fx.GraphModule, node: fx.Node) -> None:
    """One form for all weights, a step and a zero point per channel: there XNNPACK has one way to round, on every CPU.

    An op that runs in float gets its weight in float: XNNPACK has no kernel for the one without the other.
    """
    weight = stored_weight(node)
    if weight is None:
        return
    integers, scale, *rest = (value_of(module, value) for value in weight.args)
    if weight_in_int8(node) is None:
        values = weight.target(integers, scale, *rest)  # type: ignore[operator]
        node.replace_input_with(weight, constant(module, f"{node.name}_float", values))
        return
    axis, given = int(packet(node) == "conv_transpose2d"), argument(node, "bias")
    bias = value_of(module, given)
    steps = torch.as_tensor(scale, dtype=torch.float32).expand(integers.shape[axis])
    if bias is not None:
        integers, steps = fitted(integers.float(), steps, bias, node.args[0].args[1], axis)  # type: ignore
    if bias is not None and given.op != "get_attr":  # put together from parameters, as of queries, keys and values
        node.replace_input_with(given, constant(module, f"{node.name}_bias", bias))
    whole = quantized.dequantize_per_channel.default
    arguments = (
        constant(module, f"{node.name}_weight", integers.to(torch.int8)),
        constant(module, f"{node.name}_steps", steps.clone()),
        constant(module, f"zero_points_{len(steps)}", torch.zeros(len(steps), dtype=torch.int64)),
    )
    node.replace_input_with(weight, module.graph.call_function(whole, (*arguments, axis, LOW, HIGH, torch.int8)))


def stored_weight(node: fx.Node) -> fx.Node | None:
    """The dequantized weight of an op that has one."""
    if not facts(node).has_weight:
        return None
    weight = node.args[1]
    return weight if is_dequantize(weight) and is_stored(weight.args[0]) else None  # type: ignore[union-attr,return-value]


def float_weights(graph: fx.Graph) -> list[str]:
    """The ops whose integer weights XNNPACK cannot use, by name: it computes them in float."""
    weighted = [node for node in graph.nodes if stored_weight(node) is not None and weight_in_int8(node) is None]
    return [op_of(node).name for node in weighted]


def settle_bounds(module: fx.GraphModule, node: fx.Node) -> None:
    """Say in ops what XNNPACK does not read from a quantize op: its bounds, and a clamp in front of it.

    Where int8 itself has the bounds, no op is needed: ``quantize(relu(x))`` is ``quantize(x)`` with zero at −128. Otherwise
    one clamp has them all. A convolution or linear layer does it on the way; behind any other op it works on integers.
    """
    arguments: Any = node.args
    source, scale, zero_point, low, high, dtype = arguments
    limits = clamp_bounds(source)
    if limits is None and is_on_grid(source, node.args[1:]):
        return
    bottom, top = (
        int(fixed_integers(torch.tensor(limit), scale, low - zero_point, high - zero_point))
        for limit in limits or (-math.inf, math.inf)
    )
    if limits is not None:
        source = source.args[0]
        node.args = (source, *node.args[1:])
    if (bottom, top) == (LOW - zero_point, HIGH - zero_point):
        return
    inner = source if facts(source).is_layer else pair(module.graph, source, (scale, zero_point, LOW, HIGH, dtype))
    clamp = module.graph.call_function(aten.hardtanh.default, (inner, bottom * scale, top * scale))
    node.args = (clamp, *node.args[1:])


def is_on_grid(node: fx.Node, grid: tuple[Any, ...]) -> bool:
    """Whether a tensor was moved there from tensors on the same grid."""
    if not is_op(node) or facts(node).kind != "move":
        return False
    return all(is_dequantize(tensor) and tensor.args[1:] == grid for tensor in activation_inputs(node))


def round_before_moving(module: fx.GraphModule, node: fx.Node) -> None:
    """Move integers of the output's grid: a max pool or a concatenation in int8 takes its inputs for that, unasked."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if not is_op(source) or facts(source).kind != "move":
        return
    for tensor in activation_inputs(source):
        if is_dequantize(tensor) and tensor.args[1:3] != node.args[1:3]:
            with module.graph.inserting_before(source):
                source.replace_input_with(tensor, pair(module.graph, tensor, node.args[1:]))  # type: ignore[arg-type]


def keep_dimensions(module: fx.GraphModule, node: fx.Node) -> None:
    """A mean over height and width as XNNPACK has it, to 1 x 1 images, which are flattened behind it."""
    source, dims = node.args[0], argument(node, "dim")
    rank = source.meta["val"].dim()  # type: ignore[union-attr]
    if argument(node, "keepdim") or rank != 4 or sorted(dim % rank for dim in dims or ()) != [2, 3] or not is_rounded(node):
        return
    (reader,) = node.users
    images = module.graph.call_function(aten.mean.dim, (source, [2, 3], True))
    rounded = pair(module.graph, images, reader.args[1:])  # type: ignore[arg-type]
    node.replace_all_uses_with(module.graph.call_function(aten.flatten.using_ints, (rounded, 1)))


def spell_out_pool(module: fx.GraphModule, node: fx.Node) -> None:
    """Write a pool's arguments where the partitioner looks for them; where nothing is padded, no padding is counted."""
    kernel, padding = argument(node, "kernel_size"), argument(node, "padding")
    common = (node.args[0], kernel, argument(node, "stride") or kernel, padding)
    if packet(node) == "max_pool2d":
        node.args = (*common, argument(node, "dilation"), argument(node, "ceil_mode"))
    else:
        counts = argument(node, "count_include_pad") and padding not in (0, [0], [0, 0])
        divisor = (argument(node, "divisor_override"),) if argument(node, "divisor_override") else ()
        node.args = (*common, argument(node, "ceil_mode"), counts, *divisor)


def split(module: fx.GraphModule, node: fx.Node) -> None:
    """Give every reader a dequantize of its own: the partitioner marks one as part of an int8 op for all who read it."""
    for reader in list(node.users)[1:]:
        with module.graph.inserting_before(reader):
            reader.replace_input_with(node, module.graph.node_copy(node))


def constant(module: fx.GraphModule, name: str, value: Tensor) -> fx.Node:
    """A tensor that the export brings along; the same one for all that ask for it by the same name."""
    if not hasattr(module, name):
        module.register_buffer(name, value)
    node = module.graph.get_attr(name)
    node.meta = notes_of(value)
    return node


_REWRITES: tuple[tuple[Collection[str], Callable[[fx.GraphModule, fx.Node], None]], ...] = (
    ({"split", "split_with_sizes", "chunk"}, slice_up),
    ({"pad", "constant_pad_nd"}, pad_finitely),
    ({"adaptive_avg_pool2d", "adaptive_max_pool2d"}, pool_plainly),
    ({"avg_pool2d"}, convolve),
    (_MATRIX_PRODUCTS, to_linear),
    (packets_of("convolution", "linear") | _MATRIX_PRODUCTS, spell_out_weight),
    ({"quantize_per_tensor"}, settle_bounds),
    ({"quantize_per_tensor"}, round_before_moving),
    ({"mean"}, keep_dimensions),
    ({"max_pool2d", "avg_pool2d"}, spell_out_pool),
    ({"dequantize_per_tensor"}, split),
)
