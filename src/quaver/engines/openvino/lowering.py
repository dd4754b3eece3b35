"""Turn a graph that says *what* is quantized into one that computes it on integers.

Two kinds of graph come in: a prepared one, whose quantizers are live modules, and a frozen one, whose quantize and
dequantize ops have constants. Both leave as calls of the same kernels, which is why they give the same bits.
"""

import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import fx

from quaver.engines.openvino.activations import KERNELS, activation
from quaver.engines.openvino.attention import einsum, matrix_product, scaled_dot_product_attention, softmax
from quaver.engines.openvino.layer_norms import group_norm, layer_norm
from quaver.graph.nodes import (
    Facts,
    argument,
    behind,
    depends_on_input,
    is_parameter,
    is_signed,
    packet,
    rank_of,
    stored_weight,
)
from quaver.graph.patterns import (
    RoundedNorm,
    affine,
    ends_layer,
    folded_behind,
    on_integers,
    rounded_norm,
    scale_of_attention,
)
from quaver.graph.rewriter import Lowering
from quaver.int8 import kernels
from quaver.int8.folding import fold_of
from quaver.quantizers.arithmetic import Norm, dequantize

SUMMED: dict[str, Any] = {
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "softmax": softmax,
    "matmul": matrix_product,
    "bmm": matrix_product,
    "einsum": einsum,
    "scaled_dot_product_attention": scaled_dot_product_attention,
}
"""Ops with long sums of floats, which have an order of the engine's own; by the name of torch's op."""
_ROUNDINGS = ("quantizer", "quantize", "dequantize")
_HARD = {"hard_swish": kernels.hard_swish, "hard_sigmoid": kernels.hard_sigmoid}


@dataclass
class OpenVINOLowering(Lowering):
    """A lowering; what only readers in float need is spare."""

    convolved: set[fx.Node] = field(default_factory=set)  # convolutions on integers, or their batch norms and activations
    # what was added to them, in steps of the other operand
    sums: dict[fx.Node, tuple[fx.Node, Any, bool]] = field(default_factory=dict)
    layers: dict[fx.Node, fx.Node] = field(default_factory=dict)  # that give a tensor, with what they fold
    unscaled: dict[fx.Node, fx.Node] = field(default_factory=dict)  # linear layers that round by themselves: their sums

    @cached_property
    def quantized(self) -> bool:
        """Whether the graph is one for the engine: a float one is torch's."""
        return any(op.kind in ("quantizer", "dequantize") for op in self.facts.values())

    def lowered(self, node: fx.Node) -> fx.Node | None:
        """What an op becomes; None where it stays as it is."""
        op = self.facts[node]
        if op.kind == "quantizer":
            return self.fake_quant(node)
        if op.kind == "dequantize":
            return self.dequantize(node)
        whole = [arg in self.integers for arg in node.args[:2] if isinstance(arg, fx.Node)]
        if op.is_layer and whole[1]:
            return self.biased(node)
        if op.kind == "matrix product" and any(whole):
            (x, x_scale), (y, y_scale) = (self.integers.get(arg, (arg, 1.0)) for arg in node.args[:2])  # type: ignore[arg-type]
            return self.call(kernels.matrix_product, node.target, x, y, x_scale, y_scale)
        if op.type == "elementwise_add":
            return self.added(node)
        if op.type == "elementwise_mul" and whole == [True, True] and self.is_product(node):
            return self.product_of_integers(*node.args)  # type: ignore[arg-type]
        if op.type == "relu" and node.args[0] in self.sums:
            return self.relu(node)
        if op.fused and node.args[0] in self.convolved and len(node.args[0].users) == 1:  # type: ignore[union-attr]
            self.convolved.add(node)
        if op.type in _HARD and node.args[0] in self.convolved:
            return self.call(_HARD[op.type], node.args[0])
        if self.quantized and _is_approximated(node):
            return self.call(activation, packet(node), *node.args)
        if self.quantized and (scale := scale_of_attention(node)) is not None:
            keys = self.call(operator.mul, node.args[1], affine(scale).constant)  # type: ignore[union-attr]
            self.copies[scale] = self.call(matrix_product, node.args[0], keys)
            return self.copies[scale]
        if self.quantized and (kernel := SUMMED.get(packet(node))) is not None and node.op == "call_function":
            return self.call(kernel, *node.args, **node.kwargs)
        if self.quantized and packet(node) == "topk":
            return self.call(kernels.first_largest, *node.args, **node.kwargs)
        if op.kind == "average" and whole[0] and not node.kwargs:
            x, scale = self.integers[node.args[0]]  # type: ignore[index]
            shifted = self.shifted(node.args[0])  # type: ignore[arg-type]
            return self.call(kernels.average, node.target, x, scale, tuple(node.args[1:]), packet(node), shifted)
        return None

    def fake_quant(self, node: fx.Node) -> fx.Node:
        """A quantizer as it is now."""
        assert isinstance(node.target, str)
        quantizer, x = self.result.create_node("get_attr", node.target), node.args[0]
        pair = self.call(kernels.quantizer_integers, quantizer, *self.in_steps(x, node))
        whole, scale = self.call(operator.getitem, pair, 0), self.call(operator.getitem, pair, 1)
        self.integers[node] = (whole, scale)
        if is_parameter(node.args[0]):  # its step may be per channel: let the quantizer shape it
            return self.spared(self.copy(node))
        return self.spared(self.call(dequantize, whole, scale))

    def dequantize(self, node: fx.Node) -> fx.Node:
        """What a frozen program's integers stand for."""
        source, scale, zero_point = node.args[0], node.args[1], node.args[2]
        assert isinstance(source, fx.Node)
        if self.facts[source].kind == "quantize":
            low, high = (bound - zero_point for bound in source.args[3:5])  # type: ignore[operator]
            x, *how = self.in_steps(source.args[0], node)
            whole = self.call(kernels.stored_activation, x, scale, low, high, *how)
            self.integers[node] = (whole, scale)
            return self.spared(self.call(dequantize, whole, scale))
        self.integers[node] = (self.call(kernels.stored_integers, stored_weight(node)), scale)
        return self.spared(self.copy(node))

    def in_steps(self, x: Any, rounded: fx.Node) -> tuple[Any, ...]:
        """A tensor to be quantized, whether 128 is added first, and the step it is counted in if it is."""
        norm = rounded_norm(x, self.signed(rounded))
        if norm is not None:
            by_layer = self.is_rounded_by_layer(norm.tensor)
            shifted = not by_layer or self.shifted(rounded, convolved=True) or self.is_added_apart(rounded)
            return (x, shifted, None, False, self.norm(norm, by_layer))
        # a kernel of its own always adds it, and takes it off again for who reads it signed
        alone = x.op == "placeholder" or len(x.users) > 1 or self.is_product(x) or self.is_rounded_twice(rounded)
        if x in self.sums:
            steps, scale, in_place = self.sums[x]
            layer = self.layer_of(x)
            alone = alone or not in_place or (layer is not None and not self.rounds(layer, x))
            shifted = alone or self.shifted(rounded) or self.is_added_apart(rounded)
            return (steps, shifted and self.signed(rounded), scale, in_place)
        sums = self.unscaled.get(x.args[0] if self.facts[x].type in ("relu", "relu6") else x)
        if sums is not None:
            return (x, self.shifted(rounded), None, False, None, sums)
        return (x, alone or self.shifted(rounded) or self.is_rounded_apart(x))

    def is_rounded_apart(self, x: Any) -> bool:
        """Whether what is computed is rounded by a kernel of its own, though it may have been moved before.

        Layers and averages round by themselves; what is on a grid already, nobody rounds.
        """
        while self.facts[x].only_moves and isinstance(x.args[0], fx.Node):
            x = x.args[0]
        if self.facts[x].only_moves or self.facts[x].kind in ("average", *_ROUNDINGS):
            return False
        while self.facts[x].fused:
            x = x.args[0]
        return not (self.facts[x].is_layer or x in self.convolved or x in self.sums)

    def is_rounded_by_layer(self, x: Any) -> bool:
        """Whether the layer that gives ``x`` also rounds what follows; of a concatenation, the layers of all parts."""
        if len(x.users) > 1:
            return False
        if self.facts[x].type == "concat":
            return all(map(self.is_rounded_by_layer, x.args[0]))
        layer = self.layer_of(x)
        return layer is not None and self.rounds(layer, x) and (x not in self.sums or self.sums[x][2])

    def norm(self, pattern: RoundedNorm, by_layer: bool) -> fx.Node:
        """A batch norm that OpenVINO takes into the rounding behind it, and what it is a norm of."""
        x, factor, shift = pattern.tensor, self.call(kernels.no_change, pattern.tensor), None
        for step in pattern.steps:
            kernel, constants = fold_of(step)
            folded = self.call(kernel, factor, shift, *map(self.early, constants))
            factor, shift = self.call(operator.getitem, folded, 0), self.call(operator.getitem, folded, 1)
        if x in self.sums:
            fused = self.sums[x][2] and len(x.users) == 1
            return self.call(Norm, self.sums[x][0], factor, shift, self.sums[x][1], fused, by_layer)
        return self.call(Norm, x, factor, shift, None, False, by_layer)

    def added(self, node: fx.Node) -> fx.Node | None:
        """An addition that engines do in steps of a quantized operand: to a convolution's output, or to the other one."""
        operands = [value for value in node.args[:2] if isinstance(value, fx.Node)]
        raw = [value for value in operands if value in self.convolved and len(value.users) == 1]
        whole = [value for value in operands if value in self.integers]
        if len(operands) == len(whole) == 2 and not node.kwargs and all(map(depends_on_input, whole)):
            return self.sum_of_integers(node, *whole)
        if len(operands) != 2 or len(raw) != 1 or len(whole) != 1 or node.kwargs:
            return None
        integers, scale = self.integers[whole[0]]
        layer = self.layer_of(raw[0])
        of_linear = layer is not None and self.facts[layer].kind == "linear"
        shifted = self.shifted(whole[0]) and not of_linear
        steps = self.call(kernels.added, raw[0], integers, scale, shifted)
        self.sums[node] = (steps, scale, self.adds_in_place(raw[0], whole[0]))
        return self.spared(self.call(dequantize, steps, scale))

    def sum_of_integers(self, node: fx.Node, first: fx.Node, second: fx.Node) -> fx.Node:
        """A sum of quantized tensors: a kernel of its own, which counts in steps of the second of them.

        Of the first, if nobody but the sum reads the second, and others do read the first.
        """
        scaled, kept, as_floats = self.brought_together(first, second)
        (x, x_scale), (y, y_scale) = self.integers[scaled], self.integers[kept]
        x_zero = 128 * (self.signed(scaled) if as_floats else self.shifted(scaled))
        steps = self.call(kernels.sum_of_integers, x, x_scale, x_zero, y, y_scale, 128 * self.shifted(kept), as_floats)
        self.sums[node] = (steps, y_scale, False)
        return self.spared(self.call(dequantize, steps, y_scale))

    def product_of_integers(self, first: fx.Node, second: fx.Node) -> fx.Node | None:
        """A product of quantized tensors, the steps of both taken into one: not where the other has a zero point."""
        scaled, kept, as_floats = self.brought_together(first, second)
        if self.shifted(kept):
            return None
        (x, x_scale), (y, y_scale) = self.integers[scaled], self.integers[kept]
        x_zero = 128 * (self.signed(scaled) and as_floats)
        return self.call(kernels.product_of_integers, x, x_scale, x_zero, y, y_scale, as_floats)

    def brought_together(self, first: fx.Node, second: fx.Node) -> tuple[fx.Node, fx.Node, bool]:
        """Which of two quantized tensors OpenVINO brings into other steps, for the other; and whether its rounding does so.

        One that is not transposed, rather than one that is; else one that nobody else reads, rounded or not; else what a
        layer gives, if nobody else reads either; else the first.
        """
        scaled, kept = first, second
        for stays in (
            self.is_transposed,
            self.is_shared,
            lambda operand: not (self.is_shared(operand) or self.is_of_products(operand)),
        ):
            if stays(first) != stays(second):
                scaled, kept = (second, first) if stays(first) else (first, second)
                break
        return scaled, kept, len(scaled.users) == 1 and not self.is_moved(scaled)

    def is_transposed(self, rounded: fx.Node) -> bool:
        """Whether a rounded tensor is one that was transposed last: OpenVINO transposes it behind the sum or the product."""
        x: Any = rounded
        while self.facts[x].kind in _ROUNDINGS or self.facts[x].type in ("assign", "slice"):
            x = x.args[0]
        return self.facts[x].type == "transpose"

    def is_shared(self, rounded: fx.Node) -> bool:
        """Whether a rounded tensor is read by more than one, or what is rounded to it."""
        x: Any = self.rounded_from(rounded)
        while rounded is not x and len(rounded.users) == 1:
            rounded = rounded.args[0]  # type: ignore[assignment]
        return len(rounded.users) > 1

    def is_of_products(self, rounded: fx.Node) -> bool:
        """Whether a convolution or a product of matrices is rounded as it is, with its bias at most.

        Not a linear layer of more than three dimensions: a file has it on rows, and a reshape behind it.
        """
        x = self.rounded_from(rounded)
        layer = self.layers.get(x, x)
        kind = self.facts[layer].kind
        return kind in ("convolution", "matrix product") or (kind == "linear" and (rank_of(layer) or 0) <= 3)

    def rounded_from(self, rounded: fx.Node) -> fx.Node:
        """What is rounded, perhaps more than once in a row, to give a tensor."""
        x: Any = rounded
        while self.facts[x].kind in _ROUNDINGS or self.facts[x].type == "assign":
            x = x.args[0]
        return x  # type: ignore[no-any-return]

    def is_product(self, x: fx.Node) -> bool:
        """Whether a tensor is a product of two quantized ones, such as a gate's: no layer computes it."""
        return self.facts[x].type == "elementwise_mul" and all(map(depends_on_input, x.args[:2]))

    def is_moved(self, node: fx.Node) -> bool:
        """Whether a rounded tensor is one that was on its grid before it was moved: nobody rounds it again."""
        x: Any = node.args[0]
        x = x.args[0] if self.facts[node].kind == "dequantize" else x
        while isinstance(x, fx.Node) and self.facts[x].only_moves:
            x = x.args[0]
        return x in self.integers

    def adds_in_place(self, convolved: fx.Node, shortcut: fx.Node) -> bool:
        """Whether OpenVINO adds inside the convolution, onto the shortcut's memory.

        Not where the convolution reads it itself, nor where somebody does who need not have done so before it runs.
        """
        layer = self.layer_of(convolved)
        if layer is None or self.facts[layer].kind == "linear" or layer.args[0] is shortcut:
            return False
        (total,) = convolved.users
        others = [reader for reader in self.readers(shortcut) if reader is not total]
        return not others or behind(layer).keys() >= set(others)

    def readers(self, rounded: fx.Node) -> list[fx.Node]:
        """Who reads the memory that a rounded tensor lies in. Equal moves of a tensor are one."""
        if not self.is_moved(rounded):
            return self.own_readers(rounded)
        move: Any = rounded.args[0].args[0] if self.facts[rounded].kind == "dequantize" else rounded.args[0]  # type: ignore[union-attr]
        call = (move.target, move.args, move.kwargs)
        equal = [other for other in move.args[0].users if (other.target, other.args, other.kwargs) == call]
        return [reader for other in equal for reader in self.past_rounding(other)]

    def past_rounding(self, node: fx.Node) -> list[fx.Node]:
        """Who reads a tensor, perhaps once it is rounded."""
        roundings = [reader for reader in node.users if self.facts[reader].kind in _ROUNDINGS]
        others = [reader for reader in node.users if reader not in roundings]
        return others + [reader for rounding in roundings for reader in self.past_rounding(rounding)]

    def shifted(self, node: fx.Node, convolved: bool | None = None) -> bool:
        """Whether the integers of a fake-quant or dequantize node are stored shifted: signed, and multiplied by weights.

        ``convolved``: a layer rounds them; by default as the graph says.
        """
        if convolved is None:
            rounding: Any = node.args[0] if self.facts[node].kind == "dequantize" else node
            layer = self.layer_of(rounding.args[0])
            convolved = layer is not None and self.rounds(layer, rounding.args[0])
        return self.signed(node) and any(self.reads_shifted(reader, convolved) for reader in self.own_readers(node))

    def own_readers(self, rounded: fx.Node) -> list[fx.Node]:
        """Who reads a rounded tensor, but for concatenations that others than these read it beside.

        OpenVINO rounds the parts of a concatenation in its stead, from what they were, or leaves them as they were moved.
        """
        readers = list(rounded.users)
        return [reader for reader in readers if not self.is_rounded_concat(reader)] or readers

    def is_rounded_twice(self, rounded: fx.Node) -> bool:
        """Whether what is rounded is also rounded as a part of a concatenation."""
        return len(self.own_readers(rounded)) < len(rounded.users)

    def is_rounded_concat(self, node: fx.Node) -> bool:
        """Whether an op is a concatenation that is rounded, to the step of its parts."""
        kinds = {self.facts[reader].kind for reader in node.users}
        return self.facts[node].type == "concat" and not kinds.isdisjoint(("quantizer", "quantize"))

    def signed(self, node: fx.Node) -> bool:
        """Whether the integers of a fake-quant or dequantize node may be negative."""
        if self.facts[node].kind == "dequantize":
            return bool(node.args[3] - node.args[2] < 0)  # type: ignore[operator]
        return bool(is_signed(node))

    def reads_shifted(self, reader: fx.Node, convolved: bool) -> bool:
        """Whether an op wants signed integers shifted; one that only moves them, if one that reads its result does.

        Linear layers and transposed convolutions take signed integers, and a layer in front of them rounds without the
        shift; whatever else rounds for them adds it all the same, and takes it off again.
        """
        op = self.facts[reader]
        if op.reads_signed == "either":
            return not convolved
        if op.reads_signed != "moved":
            return op.reads_signed == "shifted"
        behind = [back for user in reader.users for back in (user.users if self.facts[user].kind == "quantize" else [user])]
        rounded = [back for back in behind if self.facts[back].kind in ("quantizer", "dequantize")]
        if op.type != "concat" and rounded:  # what is rounded behind a move is stored anew there, and here as it comes
            return not convolved
        # a concatenation wants for its rounding what it reads itself, and not what is moved to it
        others = [back for back in behind if back not in rounded and self.facts[back].type != "concat"]
        return any(self.shifted(back, convolved) for back in rounded) or any(
            self.reads_shifted(back, convolved) for back in others
        )

    def layer_of(self, x: Any) -> fx.Node | None:
        """The layer that gives ``x``, with what it does by itself, an activation or a sum; None if there is none."""
        while x in self.convolved or x in self.sums:
            if self.facts[x].is_layer:
                return x  # type: ignore[no-any-return]
            x = next((operand for operand in x.args[:2] if operand in self.convolved or operand in self.sums), None)
        return None

    def rounds(self, layer: fx.Node, x: fx.Node) -> bool:
        """Whether OpenVINO lets a layer round ``x``, which it gives.

        Sums with what a linear layer gives are a kernel of their own.
        """
        return self.facts[layer].kind == "convolution" or x not in self.sums

    def is_rounded_alone(self, x: fx.Node) -> bool:
        """Whether a tensor is rounded, behind a ReLU or ReLU6 at most, and that is all that is done with it."""
        readers = list(x.users)
        if len(readers) == 1 and self.facts[readers[0]].type in ("relu", "relu6"):
            readers = list(readers[0].users)
        return len(readers) == 1 and self.facts[readers[0]].kind in ("quantizer", "quantize")

    def is_added_apart(self, rounded: fx.Node) -> bool:
        """Whether a rounded tensor is only added to another one: a kernel of its own, which is given floats.

        The convolution that rounds them has no reason to leave out the 128.
        """
        readers = list(rounded.users)
        if len(readers) != 1 or self.facts[readers[0]].type != "elementwise_add":
            return False
        operands = readers[0].args[:2]
        return all(self.facts.get(value) and self.facts[value].kind in ("quantizer", "dequantize") for value in operands)  # type: ignore[index,arg-type]

    def relu(self, node: fx.Node) -> fx.Node:
        """A ReLU of such a sum, in the same steps."""
        steps, scale, shifted = self.sums[node.args[0]]  # type: ignore[index]
        self.sums[node] = (self.call(node.target, steps), scale, shifted)
        return self.spared(self.call(dequantize, *self.sums[node][:2]))

    def biased(self, node: fx.Node) -> fx.Node:
        """A convolution or linear layer, with what it does by itself of what follows."""
        weight, weight_scale = self.integers[node.args[1]]  # type: ignore[index]
        x, x_scale = self.integers.get(node.args[0], (node.args[0], 1.0))  # type: ignore[arg-type]
        steps = folded_behind(node)
        bias, arguments, channels = argument(node, "bias"), tuple(node.args[3:]), self.facts[node].weight.output_axis
        for step in steps:
            kernel, constants = fold_of(step)
            folded = self.call(kernel, weight_scale, bias, *map(self.early, constants))
            weight_scale, bias = self.call(operator.getitem, folded, 0), self.call(operator.getitem, folded, 1)
        last, op = steps[-1] if steps else node, self.facts[node]
        if op.kind == "linear" and self.rounds(node, last) and self.is_rounded_alone(last):
            self.unscaled[last] = self.call(kernels.sums_of_products, node.target, x, weight, x_scale, weight_scale, bias)
            result = self.call(kernels.rescaled_sums, self.unscaled[last])
        else:
            result = self.call(kernels.rescaled, node.target, x, weight, x_scale, weight_scale, bias, channels, arguments)
        if node.args[0] in self.integers:
            self.convolved.update((node, *steps))
        self.copies.update(dict.fromkeys(steps, result))
        self.layers[last] = node
        return result

    def early(self, value: Any) -> Any:
        """Make sure a value is there already: statistics may stand further down than the convolution."""
        for source in behind(value) if isinstance(value, fx.Node) else ():
            if source not in self.copies:
                self.copies[source] = self.copy(source)
        return value


def _is_approximated(node: fx.Node) -> bool:
    """Whether OpenVINO computes an op by a formula of its own that is known."""
    return node.op == "call_function" and packet(node) in KERNELS and not node.kwargs


lowering = OpenVINOLowering


# where it gives the bits of the simulation


def exact_nodes(facts: Facts) -> set[fx.Node]:
    """Those that have the simulation's bits, given those of their inputs: measured by `benchmarks/engine_patterns.py`."""
    roundings: list[Any] = [node for node, op in facts.items() if op.kind == "quantize"]
    norms = [rounded_norm(node.args[0], node.args[3] < node.args[2]) for node in roundings]
    return {node for node in facts if _is_exact(node, facts)} | {step for norm in norms if norm for step in norm.steps}


def _is_exact(node: fx.Node, facts: Facts) -> bool:
    op = facts[node]
    if op.kind == "quantize":
        return _rounds_as_simulated(node, facts)
    if op.is_layer or op.kind == "average":
        return on_integers(node, facts)
    if op.type in _HARD:  # oneDNN's own order of operations is simulated behind a layer
        return facts[node.args[0]].is_layer  # type: ignore[index]
    if op.type == "elementwise_add":
        return _of_two_tensors(node) and _adds_as_simulated(node, facts)
    if op.type == "elementwise_mul":
        return _of_two_tensors(node)
    if _is_approximated(node):
        return True
    return op.only_moves or op.kind == "clamp" or op.type == "leaky_relu"


def _rounds_as_simulated(node: fx.Node, facts: Facts) -> bool:
    """Whether it is known if OpenVINO adds 128 to a signed tensor before it rounds: that depends on who reads it."""
    _, _, zero, low = node.args[:4]
    readers = [facts[reader] for back in node.users for reader in back.users]
    is_signed = bool(low < zero)  # type: ignore[operator]
    return not is_signed or all(op.is_layer or op.reads_signed == "plain" or op.type == "concat" for op in readers)


def _adds_as_simulated(node: fx.Node, facts: Facts) -> bool:
    """Whether OpenVINO adds quantized tensors, or one to what a layer gives: other sums it rounds now and then otherwise."""
    operands: Any = node.args[:2]
    whole = [value for value in operands if facts[value].kind == "dequantize"]
    return bool(whole) and all(value in whole or ends_layer(value) for value in operands)


def _of_two_tensors(node: fx.Node) -> bool:
    """Whether an op joins two tensors and nothing else: with a constant, engines fold it into what stands in front."""
    operands = node.args[:2]
    return not node.kwargs and all(isinstance(value, fx.Node) and not is_parameter(value) for value in operands)
