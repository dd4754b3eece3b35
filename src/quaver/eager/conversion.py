"""From a model with quantized layers to a frozen program: traced with marker ops, which its quantizers then replace."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

import quaver.nn as qnn
from quaver.capture.capture import capture_modes
from quaver.capture.explain import depends_on_data
from quaver.config.qat_config import QATConfig
from quaver.eager.input_spec import InputSpec
from quaver.eager.later_parametrizations import refuse_later_parametrizations
from quaver.eager.marker_op import quantizer_marker
from quaver.eager.output_ranges import observe_output_ranges
from quaver.eager.quantized_layers import Add, Swapped, Weighted, swap_back
from quaver.eager.sign_tracking import is_watching
from quaver.engines import DEFAULT
from quaver.errors import CaptureError, ConversionError, InputError, StageError
from quaver.graph.nodes import OpNode, activation_inputs, calls, facts, is_op, op_of, weight_of
from quaver.graph.patterns import never_negative
from quaver.operators import CONVOLUTIONS, WEIGHTED
from quaver.passes import QuantizationFreezePass
from quaver.passes.placement import place
from quaver.passes.quantization_transform import is_unbatched
from quaver.passes.quantizer_groups import Group, Plan, QuantizersByName, QuantizerSource, planned_reads
from quaver.program import EVAL, InputTensor, OpPlan, Program
from quaver.program.history import PassApplied
from quaver.program.placements import Options
from quaver.quantizers import Quantizer

MarkedLayers = dict[str, tuple[Swapped, Quantizer | None]]
"""For the key of each marker op, the layer that it stands in front of, and the quantizer of that input."""
LAYER_QUANTIZER = "layer_quantizer"
"""The key of a plan's options under which a layer's own quantizer stands."""


def frozen_program(net: nn.Module, specs: list[InputSpec], config: QATConfig, batches: Iterable[Any] = ()) -> Program:
    """The model as a frozen program over tensors of its own; ``batches`` show the ranges of what layers give."""
    swapped = [module for module in net.modules() if isinstance(module, Swapped)]
    if not any(layer.own() for layer in swapped):
        raise StageError("the model has no quantizers. Call quantize(net) first, then train.")
    refuse_later_parametrizations(net)
    for layer in swapped:
        layer.look_below_zero()
    layers: MarkedLayers = {}
    device = next((tensor.device for tensor in (*net.parameters(), *net.buffers())), None)
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        with _with_markers(net, layers):
            program = _captured(net, specs, device)
        plan = _plan(program.graphs[EVAL], layers)
        prepared = place(program, DEFAULT, lambda *_: (plan, {}), factory=_LayerQuantizers(program))
        prepared.training, prepared.history = False, (PassApplied.of("QAT", vars(config)),)
        observe_output_ranges(prepared, batches, specs)
        return QuantizationFreezePass().apply(prepared)


@contextmanager
def _with_markers(net: nn.Module, layers: MarkedLayers) -> Iterator[None]:
    """The model while it is traced: its layers in float, with a marker op in front of each input that is rounded.

    It is the model itself and no copy: its forward may reach its layers through a list, a bound method or a closure.
    Whatever happens to it meanwhile is undone.
    """
    before = [(module, type(module), dict(module.__dict__)) for module in net.modules()]
    try:
        for module, _, _ in before:
            _insert_markers(module, layers)
        yield
    finally:
        for module, kind, attributes in before:
            if type(module) is not kind:
                module.__class__ = kind
            for name in module.__dict__.keys() - attributes.keys():
                del module.__dict__[name]
            module.__dict__.update(attributes)


def _insert_markers(module: nn.Module, layers: MarkedLayers) -> None:
    own = module.__dict__  # other tables for the time being, so that the model's own stay as they are
    own["_forward_hooks"] = _unwatched(module._forward_hooks)
    own["_forward_pre_hooks"] = _unwatched(module._forward_pre_hooks)
    own["_compiled_call_impl"] = None  # net.compile()
    if isinstance(module, Swapped):
        own["_modules"] = dict(module._modules)
        own["_forward_pre_hooks_with_kwargs"] = copy(module._forward_pre_hooks_with_kwargs)
        keys = []
        for position, name, quantizer in _marked_inputs(module):
            keys.append((position, name, str(len(layers))))
            layers[str(len(layers))] = (module, quantizer)
        swap_back(module)
        if keys:
            module.register_forward_pre_hook(partial(_mark_inputs, keys), with_kwargs=True)


def _unwatched(hooks: dict[int, Any]) -> OrderedDict[int, Any]:
    """The hooks without those that watch signs."""
    return OrderedDict((key, hook) for key, hook in hooks.items() if not is_watching(hook))


def _marked_inputs(layer: Any) -> list[tuple[int, str, Quantizer | None]]:
    if isinstance(layer, Add):
        return [(k, name, layer.input_quantizers[k]) for k, name in enumerate(("x", "y")) if k != layer._quaver_raw]  # type: ignore[misc]
    return [(0, "input", layer.input_quantizer)] if layer.own() else []


def _mark_inputs(
    keys: list[tuple[int, str, str]], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given: dict[Any, Any] = dict(enumerate(args)) | kwargs
    if isinstance(module, qnn.Add) and not all(isinstance(operand, Tensor) for operand in given.values()):
        return args, kwargs  # a number is added as it is
    for position, name, key in keys:
        place = position if position in given else name
        given[place] = quantizer_marker(given[place], key)
    return tuple(given[position] for position in range(len(args))), {name: given[name] for name in kwargs}


def _captured(net: nn.Module, specs: list[InputSpec], device: torch.device | None) -> Program:
    try:
        program = capture_modes(net, tuple(spec.example(device) for spec in specs), None, (EVAL,))
    except CaptureError as error:
        if depends_on_data(error.__cause__):
            way_out = (
                "The live model trains with it, but a file needs one graph: write this branch with torch.where, decide by "
                "shapes or attributes, or write its sides as models of their own."
            )
        else:
            shown = ", ".join(f"InputSpec({list(spec.shape)}, {spec.dtype})" for spec in specs)
            way_out = f"Look at input_spec: the model was called with {shown}."
        raise CaptureError(f"{error.fact} {way_out}", error.fact) from error
    inputs = []
    for leaf, spec in zip(program.signature.tensors, specs, strict=True):
        if spec.shape[0] is None and leaf.shape[0] is not None:
            raise InputError(
                f"input {spec.name or leaf.name!r}: the model insists on the batch it was traced with. Give its size in the "
                "InputSpec instead of None."
            )
        inputs.append(InputTensor(spec.name or leaf.name, tuple(spec.shape), leaf.dtype))
    program.signature = replace(program.signature, inputs=tuple(inputs))
    return program


def _plan(graph: fx.Graph, layers: MarkedLayers) -> Plan:
    """Take the marker ops out of a graph, and give what they say: which ops read what through which quantizer."""
    markers = [node for node in graph.nodes if calls(node, "quantizer_marker")]
    never_signed = never_negative(map(_source, markers))
    plan: Plan = {}
    for node in markers:
        layer, quantizer = layers[node.args[1]]  # type: ignore[index]
        if layer._quaver_sign_tracker is not None and quantizer is not None:
            # no forward yet: the graph says what one would show
            quantizer.grid = replace(quantizer.grid, signed=_source(node) not in never_signed)
        read, readers = node, list(node.users)
        while len(readers) == 1 and facts(readers[0]).kind == "pad":  # which copies values: round behind it
            read, readers = readers[0], list(readers[0].users)
        for reader in readers:
            if isinstance(layer, Weighted):
                _refuse_computed_weight(reader, layer)
            if is_op(reader):
                weight = {LAYER_QUANTIZER: layer.weight_quantizer} if isinstance(layer, Weighted) else None
                planned = plan.setdefault(op_of(reader).name, OpPlan(weight))
                if quantizer is not None:
                    position = activation_inputs(reader).index(read)
                    planned.inputs[position] = {LAYER_QUANTIZER: quantizer, "bits": quantizer.grid.bits}
    for node in markers:
        node.replace_all_uses_with(_source(node))
        graph.erase_node(node)
    return plan


def _refuse_computed_weight(reader: fx.Node, layer: Weighted) -> None:
    op = op_of(reader) if is_op(reader) else None
    if op is None or op.type not in WEIGHTED or weight_of(reader) is None:
        raise ConversionError(
            f"{layer.weight_quantizer.tensor!r}: the weight is computed from the input, so there are no integers to store. "
            "Leave the layer out with not_quant_pattern."
        )
    if op.type in CONVOLUTIONS and is_unbatched(reader):
        raise ConversionError(f"{op.name!r}: its input has no batch dimension. Let the model add one.")


class _LayerQuantizers(QuantizerSource):
    """Takes the layers' own quantizers, which a plan's options hold."""

    def groups(self, ops: dict[str, OpNode], plan: Plan) -> list[Group]:
        """For each tensor, a group of the readers that round it alike: layers share nothing else."""
        groups: list[Group] = []
        for tensor, reads in planned_reads(ops, plan).items():
            here: list[tuple[Quantizer, Group]] = []
            for read in reads:
                quantizer = plan[read[0].name].inputs[read[1]][LAYER_QUANTIZER]
                alike = next((group for other, group in here if _alike(other, quantizer)), None)
                if alike is None:
                    here.append((quantizer, Group([tensor], {}, [read])))
                else:
                    alike.reads.append(read)
            groups += [group for _, group in here]
        return groups

    def weight_title(self, parameter: str, op: OpNode, wanted: Options, placed: QuantizersByName) -> str:
        """The parameter's name, unless another layer's quantizer rounds the same parameter."""
        titles = [title for title, quantizer in placed.items() if quantizer is wanted[LAYER_QUANTIZER]]
        return titles[0] if titles else placed.free_name(parameter)

    def quantizer(self, title: str, options: Options) -> Quantizer:
        """The layer's own."""
        return options[LAYER_QUANTIZER]  # type: ignore[no-any-return]


def _source(node: fx.Node) -> fx.Node:
    """What a marker op, or several in a row, read."""
    while calls(node, "quantizer_marker"):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _alike(first: Quantizer, other: Quantizer) -> bool:
    """Whether two quantizers give one tensor the same integers."""
    if first is other:
        return True
    custom = any(quantizer.made_of[0] is not None for quantizer in (first, other))
    same = first.options() == other.options() and first.quantizing == other.quantizing
    return not custom and same and torch.equal(first.threshold, other.threshold)
