"""From a live model to a frozen program: traced with marks where its quantizers are, which then take their places."""

import warnings
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
from quaver.eager.computed_weights import refuse_later_parametrizations, way_to_a_parameter
from quaver.eager.ends import observe_ends, unrounded_ends
from quaver.eager.input_spec import InputSpec
from quaver.eager.layers import Add, Swapped, Weighted, swap_back
from quaver.eager.marks import mark
from quaver.eager.signs import is_watching
from quaver.errors import CaptureError, ConversionError, InputError, QuaverWarning, StageError
from quaver.graph.nodes import copy_graph, is_op, is_stored, op_of, ops_by_name, packet, quantizer_of, tensor_notes
from quaver.operators import CONVOLUTIONS, WEIGHTED, facts, never_negative, weight_of
from quaver.passes import QuantizationFreezePass
from quaver.passes.quantization_transform import is_unbatched
from quaver.passes.reasons import why_float
from quaver.passes.tensor_names import free_name, tensor_name
from quaver.program import EVAL, InputTensor, Placements, Program, Stage
from quaver.program.history import PassApplied
from quaver.program.views import mount
from quaver.quantizers import AbsMax, Observer, Quantizer


def frozen_program(net: nn.Module, specs: list[InputSpec], config: QATConfig, batches: Iterable[Any] = ()) -> Program:
    """The model as a frozen program over tensors of its own; ``batches`` show the ranges of what layers give."""
    swapped = [module for module in net.modules() if isinstance(module, Swapped)]
    if not any(layer.own() for layer in swapped):
        raise StageError("the model has no quantizers. Call quantize(net) first, then train.")
    refuse_later_parametrizations(net)
    for layer in swapped:
        layer.look_below_zero()
    layers: dict[str, tuple[Swapped, int]] = {}
    device = next((tensor.device for tensor in (*net.parameters(), *net.buffers())), None)
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        with _marked(net, layers):
            program = _captured(net, specs, device)
        prepared = _Placing(program, layers).run()
        prepared.history = (PassApplied.of("QAT", vars(config)),)
        observe_ends(prepared, batches, specs)
        return QuantizationFreezePass().apply(prepared)


@contextmanager
def _marked(net: nn.Module, layers: dict[str, tuple[Swapped, int]]) -> Iterator[None]:
    """The model, for as long as it is traced, with float layers and, in front of each input that is rounded, a mark.

    It is the model itself, for its forward may come to its layers in ways that no copy follows: a list, a bound method, a
    closure. Whatever happens to it meanwhile is undone.
    """
    before = [(module, type(module), dict(module.__dict__)) for module in net.modules()]
    try:
        for module, _, _ in before:
            _mark_layer(module, layers)
        yield
    finally:
        for module, kind, attributes in before:
            if type(module) is not kind:
                module.__class__ = kind
            for name in module.__dict__.keys() - attributes.keys():
                del module.__dict__[name]
            module.__dict__.update(attributes)


def _mark_layer(module: nn.Module, layers: dict[str, tuple[Swapped, int]]) -> None:
    own = module.__dict__  # other tables for the time being, so that the model's own stay as they are
    own["_forward_hooks"] = _unwatched(module._forward_hooks)
    own["_forward_pre_hooks"] = _unwatched(module._forward_pre_hooks)
    own["_compiled_call_impl"] = None  # net.compile()
    if isinstance(module, Swapped):
        own["_modules"] = dict(module._modules)
        own["_forward_pre_hooks_with_kwargs"] = copy(module._forward_pre_hooks_with_kwargs)
        keys = []
        for position, name in _marked_inputs(module):
            keys.append((position, name, str(len(layers))))
            layers[str(len(layers))] = (module, position)
        swap_back(module)
        if keys:
            module.register_forward_pre_hook(partial(_mark_inputs, keys), with_kwargs=True)


def _unwatched(hooks: dict[int, Any]) -> OrderedDict[int, Any]:
    """The hooks without those that watch signs."""
    return OrderedDict((key, hook) for key, hook in hooks.items() if not is_watching(hook))


def _marked_inputs(layer: Swapped) -> list[tuple[int, str]]:
    if isinstance(layer, Add):
        return [(position, name) for position, name in enumerate(("x", "y")) if position != layer._quaver_raw]
    return [(0, "input")] if layer.own() else []


def _mark_inputs(
    keys: list[tuple[int, str, str]], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given: dict[Any, Any] = dict(enumerate(args)) | kwargs
    if isinstance(module, qnn.Add) and not all(isinstance(operand, Tensor) for operand in given.values()):
        return args, kwargs  # a number is added as it is
    for position, name, key in keys:
        place = position if position in given else name
        given[place] = mark(given[place], key)
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


class _Placing:
    """Puts quantizers in the place of marks, and in front of weights."""

    def __init__(self, program: Program, layers: dict[str, tuple[Swapped, int]]) -> None:
        self.program = program
        self.layers = layers
        self.graph = copy_graph(program.graphs[EVAL])
        self.modules: dict[str, Quantizer] = {}
        self.weights: dict[str, str] = {}
        self.roles: dict[str, dict[str, str]] = {}
        self.root = program.free_name("quantizers")

    def run(self) -> Program:
        marks = [node for node in self.graph.nodes if _is_mark(node)]
        known: dict[fx.Node, bool] = {}
        signed = {node: not never_negative(_source(node), known) for node in marks}
        for node in marks:
            layer, position = self.layers[node.args[1]]
            quantizer = _quantizer(layer, position)
            if layer._quaver_signs is not None and quantizer is not None:
                # no forward yet: the graph says what one would show
                quantizer.grid = replace(quantizer.grid, signed=signed[node])
            source, readers = self.take_out(node)
            if isinstance(layer, Weighted):
                for reader in readers:
                    self.place_weight(reader, layer)
            if quantizer is not None:
                self.place(source, readers, quantizer, position if isinstance(layer, Add) else None)
        self.watch_ends()
        return self.prepared()

    def take_out(self, node: fx.Node) -> tuple[fx.Node, list[fx.Node]]:
        """Remove a mark; give what it stood behind, and what reads it. Padding copies values: the mark moves behind it."""
        source, readers = _source(node), list(node.users)
        node.replace_all_uses_with(source)
        self.graph.erase_node(node)
        while len(readers) == 1 and facts(readers[0]).kind == "pad":
            source, readers = readers[0], list(readers[0].users)
        return source, readers

    def place(self, source: fx.Node, readers: list[fx.Node], quantizer: Quantizer, position: int | None) -> None:
        """Let these ops read ``source`` through the quantizer; one that rounds it in the same way already will do."""
        for other in source.users:
            if quantizer_of(other) and _alike(self.modules[quantizer_of(other)], quantizer):
                title, call = quantizer_of(other), other
                break
        else:
            title = free_name(tensor_name(source, self.graph, self.program.signature), self.modules)
            call = self.call(title, source, quantizer)
        for reader in readers:
            if reader is not call:
                reader.replace_input_with(source, call)
                if is_op(reader):
                    role = "input" if position is None else f"input{position}"
                    self.roles.setdefault(op_of(reader).name, {})[role] = title

    def place_weight(self, reader: fx.Node, layer: Weighted) -> None:
        op = op_of(reader) if is_op(reader) else None
        stored = None if op is None else weight_of(reader)
        if op is None or op.type not in WEIGHTED or stored is None or not is_stored(stored):
            raise ConversionError(
                f"{layer.weight_quantizer.tensor!r}: the weight is computed anew in every forward (a parametrization, say), "
                f"so there are no integers to store. {way_to_a_parameter(layer)}"
            )
        if op.type in CONVOLUTIONS and is_unbatched(reader):
            raise ConversionError(f"{op.name!r}: its input has no batch dimension. Let the model add one.")
        title = self.program_name(str(stored.target), layer.weight_quantizer)
        placed = [user for user in stored.users if quantizer_of(user) == title]
        reader.replace_input_with(stored, placed[0] if placed else self.call(title, stored, layer.weight_quantizer))
        self.weights[title] = str(stored.target)
        self.roles.setdefault(op.name, {})["weight"] = title

    def program_name(self, parameter: str, quantizer: Quantizer) -> str:
        """The name under which a weight's quantizer is known: the parameter's, unless two layers share the parameter."""
        for title, known in self.modules.items():
            if known is quantizer:
                return title
        return free_name(parameter, self.modules)

    def call(self, title: str, tensor: fx.Node, quantizer: Quantizer) -> fx.Node:
        self.modules[title] = quantizer
        anchor = tensor
        while anchor.next.op == "placeholder":  # inputs stay in front
            anchor = anchor.next
        with self.graph.inserting_after(anchor):
            node = self.graph.create_node("call_module", f"{self.root}.{title}", (tensor, None))
        node.meta = tensor_notes(tensor, quantizer=title, signed=quantizer.grid.signed)
        return node

    def watch_ends(self) -> None:
        """An observer for what an op on integers gives, where no quantizer stands behind it."""
        on_integers = [name for name, roles in self.roles.items() if any(role.startswith("input") for role in roles)]
        titles: dict[fx.Node, str] = {}
        for name, last in unrounded_ends(self.graph, on_integers).items():
            if last not in titles:
                titles[last] = free_name(tensor_name(last, self.graph, self.program.signature), self.modules)
                self.modules[titles[last]] = Observer()
            self.roles[name]["output"] = titles[last]

    def prepared(self) -> Program:
        batchwise = [name for name, quantizer in self.modules.items() if isinstance(quantizer, AbsMax)]
        batchwise = [name for name in batchwise if name not in self.weights]
        if batchwise:
            warnings.warn(
                f"{batchwise[0]!r} and the other activations have the range rule abs_max, which looks at each batch anew. "
                "What is written has the range of the last training batch.",
                QuaverWarning,
                stacklevel=6,  # whoever called convert or save_quantized_model
            )
        placements = Placements(
            root=self.root,
            quantizers={title: f"{self.root}.{title}" for title in self.modules},
            weights=self.weights,
            roles=self.roles,
            reasons=why_float(ops_by_name(self.graph), frozenset(self.roles), {}),
            quantized=frozenset(self.roles),
        )
        prepared = self.program.copy(graphs={EVAL: self.graph}, stage=Stage.PREPARED, placements=placements)
        home = nn.Module()
        for title, quantizer in self.modules.items():
            mount(home, title, quantizer)
        prepared._modules[self.root] = home
        prepared.training = False
        return prepared


def _is_mark(node: fx.Node) -> bool:
    return node.op == "call_function" and packet(node) == "quantizer_mark"


def _source(node: fx.Node) -> fx.Node:
    """What a mark, or several in a row, stand behind."""
    while _is_mark(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _quantizer(layer: Any, position: int) -> Quantizer | None:
    quantizer: Any = layer.input_quantizers[position] if isinstance(layer, Add) else layer.input_quantizer
    return quantizer  # type: ignore[no-any-return]


def _alike(one: Quantizer, other: Quantizer) -> bool:
    """Whether two quantizers give one tensor the same integers."""
    if one is other:
        return True
    custom = any(quantizer.made_of[0] is not None for quantizer in (one, other))
    same = one.options() == other.options() and one.quantizing == other.quantizing
    return not custom and same and torch.equal(one.threshold, other.threshold)
