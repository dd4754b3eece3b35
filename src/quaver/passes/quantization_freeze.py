"""The third pass: what was trained becomes integers and constants."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, fx, nn

from quaver.checking import or_none
from quaver.config.options import lists_options, rules_of
from quaver.config.quantization_options import ActivationOptions, WeightOptions, WeightRange
from quaver.errors import StageError
from quaver.graph.annotation import notes_of
from quaver.graph.copying import copy_graph
from quaver.graph.nodes import (
    argument,
    behind,
    is_fake_quant,
    is_op,
    is_parameter,
    op_of,
    quantizer_of,
    tensor_notes,
)
from quaver.graph.patterns import folded_behind
from quaver.int8.folding import fold_of
from quaver.operators import channel_axis
from quaver.passes.base import SaidTypes
from quaver.passes.custom_functions import reason_in_front, traced_function, with_plain_quantizers
from quaver.passes.quantized_ops import dequantize_weight, quantize_dequantize
from quaver.passes.redundant_options import redundant_option, refuse_other_options
from quaver.program import EVAL, Placements, Program, Stage
from quaver.program.finite import refuse_not_finite
from quaver.program.op_record import OpRecord
from quaver.program.seen_data import seen_data
from quaver.program.views import parent_module, read, value_of
from quaver.quantizers import Observer, Quantizer


def _as_trained(kind: type, name: str) -> Any:
    return redundant_option(or_none(rules_of(kind)[name]), "None, or what the program was trained with.")


@lists_options
@dataclass(frozen=True, kw_only=True)
class QuantizationFreezePass(SaidTypes):
    """Rewrite ``bn(conv(fq(x), fq(w)))`` as ``conv(dequantize(quantize(x)), dequantize(integers), bias)``.

    Weights become integers of the 8-bit range, stored as float32, their thresholds taken from the weights as they are.
    Batch norm goes into the weight's step and the bias: ``scale·γ/σ``, with the integers' sign turned where γ < 0; so do
    products and sums with a constant per channel. No integer changes, so the output is that of the prepared program in
    evaluation, bit for bit.
    """

    needs: ClassVar = (Stage.PREPARED,)
    otherwise: ClassVar = "A program is frozen once, after quantizers were placed and trained."

    weight_quantize_type: str | None = _as_trained(WeightRange, "weight_quantize_type")
    weight_bits: int | None = _as_trained(WeightOptions, "weight_bits")
    activation_bits: int | None = _as_trained(ActivationOptions, "activation_bits")

    def check(self, program: Program) -> None:
        """Refuse other options than those the program was trained with, too."""
        super().check(program)
        options = {name: getattr(self, name) for name in ("weight_quantize_type", "weight_bits", "activation_bits")}
        given = {name: value for name, value in options.items() if value is not None}
        refuse_other_options(type(self).__name__, program, given)

    def rewrite(self, program: Program) -> Program:
        """Replace each quantizer by constants, and each batch norm by a bias."""
        quantizers = dict(program.quantizers())
        refuse_unready(program, quantizers)
        program = with_plain_quantizers(program, quantizers)
        freezing = _Freezing(program)
        with torch.no_grad():
            freezing.run()
        frozen = program.copy(
            tensors=freezing.tensors,
            graphs={EVAL: freezing.graph},
            stage=Stage.FROZEN,
            records=(*program.ops(), *freezing.in_front),
            placements=Placements(target=program.placements.target),
        )
        refuse_not_finite(frozen)  # a negative variance, say, shows in the bias
        return frozen


def refuse_unready(program: Program, quantizers: Mapping[str, Quantizer]) -> None:
    """Say what keeps a program from being frozen: NaN, or quantizers without data or without an integer form."""
    refuse_not_finite(program)
    seen = seen_data(quantizers, program.placements.weights)
    unseen = [name for name in seen if not seen[name]]
    if unseen:
        raise StageError(
            f"{_listed(unseen)} saw no data, so there is no range to convert with. Run training batches through "
            "program.train() first; without an optimizer step they only calibrate."
        )
    off = [
        name for name, quantizer in quantizers.items() if not quantizer.quantizing and not isinstance(quantizer, Observer)
    ]
    if off:
        raise StageError(
            f"{_listed(off)} are switched off, so what was evaluated is not what would be frozen. Switch them on with "
            "program.apply(quaver.enable_fake_quant), or leave their ops out with a skip pattern."
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more tensors"


@dataclass
class _Freezing:
    program: Program
    tensors: nn.Module = field(default_factory=nn.Module)
    stored: dict[str, Tensor] = field(default_factory=dict)
    in_front: list[OpRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.graph = copy_graph(self.program.graphs[EVAL])

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if is_fake_quant(node) and is_parameter(node.args[0]):
                for reader in list(node.users):
                    self.freeze_weight(reader, node)
                self.erase_with_sources(node)
            elif is_fake_quant(node):
                self.freeze_activation(node)
        self.keep_the_rest()

    def freeze_activation(self, node: fx.Node) -> None:
        name, source = quantizer_of(node), node.args[0]
        quantizer = self.program.quantizer(name)
        assert isinstance(source, fx.Node)
        with self.graph.inserting_before(node):
            if quantizer.function_in_front is not None:
                source = self.computed(quantizer.function_in_front, source, name)
            pair = quantize_dequantize(self.graph, source, float(quantizer.scale), quantizer.grid)
        node.replace_all_uses_with(pair)
        self.graph.erase_node(node)

    def computed(self, function: nn.Module, source: fx.Node, tensor: str) -> fx.Node:
        """The ops of a user's function on a tensor that is rounded behind them."""
        traced = traced_function(function, self.program, tensor)
        nodes: dict[fx.Node, fx.Node] = {}
        for node in traced.graphs[EVAL].nodes:
            if node.op == "placeholder":
                nodes[node] = source
            elif node.op == "get_attr":
                nodes[node] = self.store(f"{tensor}.preprocess.{node.target}", read(traced, node.target))
            elif node.op == "call_function":
                nodes[node] = self.graph.node_copy(node, nodes.__getitem__)
                if is_op(node):
                    op = replace(op_of(node), name=f"{tensor}.preprocess.{op_of(node).name}")
                    nodes[node].meta = tensor_notes(node, op=op)
                    self.in_front.append(
                        OpRecord(op.name, op.type, op.scope, op.source, quantized=False, why=reason_in_front(tensor))
                    )
        (result,) = traced.graphs[EVAL].output_node().all_input_nodes
        return nodes[result]

    def freeze_weight(self, op_node: fx.Node, weight: fx.Node) -> None:
        """Integers, step and bias of one op, with what it does by itself of what follows."""
        op = op_of(op_node)
        name = quantizer_of(weight)
        quantizer = self.program.quantizer(name)
        integers, scale = quantizer.integers(self.program.weight(name))
        axis = channel_axis(op.type) % integers.dim()
        if nodes := folded_behind(op_node):
            factor, bias = self.folded(op_node, nodes, scale)
            integers, scale = turn_sign(integers, scale, factor, axis)
            if bias is not None:
                self.set_bias(op_node, self.store(f"{op.name}.bias", bias.expand(integers.shape[axis])))
        with self.graph.inserting_before(op_node):
            title = self.program.placements.weights[name] or name
            float_readers = [user for user in weight.args[0].users if not is_fake_quant(user)]  # type: ignore[union-attr]
            stored = self.store(f"{title}_integers" if float_readers else title, integers)
            step = self.store(f"{op.name}.weight_scale", scale) if scale.dim() else float(scale)
            dequantized = dequantize_weight(self.graph, stored, step, axis, quantizer.grid)
        op_node.replace_input_with(weight, dequantized)

    def folded(self, op_node: fx.Node, nodes: list[fx.Node], scale: Tensor) -> tuple[Tensor, Tensor | None]:
        """Step and bias of an op that does the work of the nodes behind it, which go."""
        value = partial(value_of, self.program)
        bias = value(argument(op_node, "bias"))
        for node in nodes:
            kernel, constants = fold_of(node)
            scale, bias = kernel(scale, bias, *map(value, constants))
        nodes[-1].replace_all_uses_with(op_node)
        for node in reversed(nodes):
            self.graph.erase_node(node)
        return scale, bias

    def erase_with_sources(self, node: fx.Node) -> None:
        """Take out a node, and what nobody reads then of all that computed its input from the model's tensors."""
        for source in reversed(behind(node)):
            if not source.users:
                self.graph.erase_node(source)

    def set_bias(self, node: fx.Node, bias: fx.Node) -> None:
        node.args = (*node.args[:2], bias, *node.args[3:])
        node.kwargs = {key: value for key, value in node.kwargs.items() if key != "bias"}
        node.prepend(bias)

    def store(self, name: str, value: Tensor) -> fx.Node:
        """A tensor under a free name; the same tensor of a weight that two ops share is kept once."""
        title, count = name, 0
        while title in self.stored and not torch.equal(self.stored[title], value):
            count += 1
            title = f"{name}_{count}"
        if title not in self.stored:
            self.stored[title] = value
            place, leaf = parent_module(self.tensors, title)
            place.register_parameter(leaf, nn.Parameter(value.detach().clone().contiguous(), requires_grad=False))
        node = self.graph.create_node("get_attr", title)
        node.meta = notes_of(value)
        return node

    def keep_the_rest(self) -> None:
        """Copy what float ops read; drop what nobody reads any more."""
        for node in reversed(list(self.graph.nodes)):
            if is_parameter(node) and not node.users:
                self.graph.erase_node(node)
        for node in self.graph.nodes:
            if node.op != "get_attr" or node.target in self.stored:
                continue
            place, leaf = parent_module(self.tensors, node.target)
            if leaf in place._buffers or leaf in place._modules:
                continue
            value = read(self.program, node.target)
            if isinstance(value, Tensor):
                place.register_buffer(leaf, value.detach().clone())
            else:
                place.add_module(leaf, value)


def turn_sign(integers: Tensor, scale: Tensor, factor: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Integers and positive steps for ``factor``, the steps behind a batch norm, which may be negative or zero.

    A channel that batch norm scales by zero becomes zeros: its step may then be any, and stays as it was.
    """
    shape = [1] * integers.dim()
    shape[axis] = -1
    steps = torch.where(factor == 0, scale, factor.abs())
    return integers * torch.sign(factor).view(shape), steps
