"""From plans to quantizers: which tensors share one, and where the graphs call them.

The passes say which inputs of which ops they want quantized. Here each of these becomes a quantizer call:

- a tensor that feeds several ops is quantized once;
- ops that only move or select values (a concatenation, a max pool, a reshape) cannot rescale, so their inputs and outputs
  share one quantizer;
- the evaluation graph decides, because it is what will run; the training graph gets the same quantizers at the same inputs.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from quaver.engines import Engine
from quaver.errors import ConfigError
from quaver.graph.copying import without_quantizers
from quaver.graph.nodes import OpNode, is_stored, ops_in, tensor_notes
from quaver.graph.patterns import behind_clamp, folded_behind, never_negative
from quaver.passes.quantizer_groups import Group, Plan, QuantizersByName, QuantizerSource
from quaver.passes.reasons import why_float
from quaver.program import EVAL, TRAIN, Placements, Program, Stage
from quaver.program.placements import Options
from quaver.program.quantized_tensors import makers_in, tensor_name
from quaver.program.reason import Reason
from quaver.program.views import set_submodule, value_of

Ops = dict[str, dict[str, OpNode]]
"""For each mode the ops by name, as they are in graphs without quantizers."""

Planner = Callable[[Ops, Plan], tuple[Plan, dict[str, Reason]]]
"""Says what to quantize beside what is planned already, and what it declines and why."""


def place(program: Program, engine: Engine, *planners: Planner, factory: QuantizerSource | None = None) -> Program:
    """A prepared program with a quantizer wherever one of these, or an earlier pass, plans one; by default made anew."""
    if program.stage is Stage.PREPARED and program.placements.target != engine.name:
        raise ConfigError(
            f"target={engine.name!r}: an earlier pass placed quantizers for {program.placements.target!r}, and engines "
            "differ in where they round. Give all passes the same target."
        )
    graphs = {mode: without_quantizers(graph) for mode, graph in program.graphs.items()}
    ops = {mode: ops_in(graph) for mode, graph in graphs.items()}
    planned, declined = dict(program.placements.plan), dict(program.placements.declined)
    for planner in planners:
        more, refused = planner(ops, planned)
        planned |= more
        declined |= refused
    declined = {name: why for name, why in declined.items() if name not in planned}
    return _Placing(program, graphs, ops, planned, declined, factory or QuantizerSource(program), engine).run()


@dataclass
class _Placing:
    program: Program
    graphs: dict[str, fx.Graph]
    ops: Ops
    plan: Plan
    declined: dict[str, Reason]
    factory: QuantizerSource
    engine: Engine
    modules: QuantizersByName = field(default_factory=QuantizersByName)
    weights: dict[str, str] = field(default_factory=dict)
    computed: dict[fx.Node, str] = field(default_factory=dict)
    roles: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    calls: dict[tuple[str, fx.Node], fx.Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trained = self.ops.get(TRAIN, {})
        self.dropouts = {op.node for op in self.trained.values() if "dropout" in op.type}
        self.root = self.program.placements.root or self.program.free_name("quantizers")
        evaluated = {name: op.node for name, op in self.ops[EVAL].items()}
        self.makers = makers_in(self.graphs[EVAL], self.program.signature, evaluated)

    def run(self) -> Program:
        for name, planned in self.plan.items():
            if planned.weight is not None:
                self.place_weight(name, planned.weight)
        groups = self.factory.groups(self.ops[EVAL], self.plan)
        # asked before the first quantizer stands in the way
        computed = [tensor for group in groups for tensor in group.sources]
        unsigned = never_negative(computed) if self.engine.unsigned else set()
        for group in groups:
            self.place_group(group, signed=not unsigned.issuperset(group.sources))
        folded = {name: folded_behind(self.ops[EVAL][name].node) for name in self.plan}
        self.observe_outputs({name: (nodes or [self.ops[EVAL][name].node])[-1] for name, nodes in folded.items()})
        self.note_calls()
        placements = Placements(
            root=self.root,
            plan=self.plan,
            declined=self.declined,
            reasons=why_float(self.ops[EVAL], folded, self.declined),
            quantizers={name: f"{self.root}.{name}" for name in self.modules},
            weights=self.weights,
            roles=dict(self.roles),
            quantized=frozenset(self.plan),
            target=self.engine.name,
        )
        prepared = self.program.copy(graphs=self.graphs, stage=Stage.PREPARED, placements=placements)
        quantizers = nn.Module()
        for name, module in self.modules.items():
            set_submodule(quantizers, name, module)
        prepared._modules[self.root] = quantizers
        return prepared

    # weights

    def place_weight(self, name: str, wanted: Options) -> None:
        op = self.ops[EVAL][name]
        assert op.weight is not None
        stored = str(op.weight.target) if is_stored(op.weight) else ""
        title = self.factory.weight_title(stored or self.computed_name(op.weight, name), op, wanted, self.modules)
        if title not in self.modules:
            with torch.no_grad():
                value = value_of(self.program, op.weight)
            self.modules[title] = self.factory.of_weight(title, value, op, wanted)
            self.weights[title] = stored
        self.roles[name]["weight"] = title
        for mode, ops in self.ops.items():
            if name in ops:
                reader, weight = self.before_dropout(ops[name].node, ops[name].node.args[1])
                reader.replace_input_with(weight, self.call(mode, title, weight, 0))

    def computed_name(self, weight: fx.Node, reader: str) -> str:
        """What a weight that the model computes is called: after the first op that reads it."""
        return self.computed.setdefault(weight, self.modules.free_name(f"{reader}.computed_weight"))

    # activations

    def place_group(self, group: Group, signed: bool) -> None:
        title = self.tensor_name(group.sources[0])
        wanted = [self.plan[op.name].inputs[position] for op, position, _ in group.reads]
        self.modules[title] = self.factory.of_group(title, group, wanted, signed)
        order = {tensor: index for index, tensor in enumerate(group.sources)}
        for op, position, tensor in group.reads:
            role = "input" if len(self.plan[op.name].inputs) == 1 else f"input{position}"
            self.roles[op.name][role] = title
            index = order.get(tensor)
            self.read_quantized(EVAL, op.node, position, tensor, title, index)
            if index is not None and op.name in self.trained:
                # in training a moved tensor is on the grid already; rounding it twice would change nothing but the time
                twin = self.trained[op.name]
                reader, source = self.before_dropout(twin.node, twin.inputs[position])
                self.read_quantized(TRAIN, reader, position, source, title, index)
        for mover in group.moved.values():
            self.roles[mover]["output"] = title

    def before_dropout(self, reader: fx.Node, source: Any) -> tuple[fx.Node, fx.Node]:
        """The tensor to quantize in training: in front of a dropout, whose rescaled values never occur in evaluation."""
        while source in self.dropouts:
            reader, source = source, source.args[0]
        return reader, source

    def read_quantized(
        self, mode: str, reader: fx.Node, position: int, tensor: fx.Node, title: str, index: int | None
    ) -> None:
        if tensor.op == "call_module":  # a quantizer already: of a dropout that two ops share
            return
        if reader.args.count(tensor) > 1:  # x + x: each operand may have a quantizer of its own
            reader.update_arg(position, self.call(mode, title, tensor, index))
        else:
            reader.replace_input_with(tensor, self.call(mode, title, tensor, index))

    # both

    def call(self, mode: str, title: str, tensor: fx.Node, index: int | None) -> fx.Node:
        """The call of a quantizer on a tensor; one will do for all that read it."""
        if (title, tensor) in self.calls:
            return self.calls[title, tensor]
        graph, anchor = self.graphs[mode], tensor
        while anchor.next.op == "placeholder":  # inputs stay in front
            anchor = anchor.next
        with graph.inserting_after(anchor):
            node = graph.create_node("call_module", f"{self.root}.{title}", (tensor, index))
        self.calls[title, tensor] = node
        return node

    def note_calls(self) -> None:
        for (title, tensor), node in self.calls.items():
            node.meta = tensor_notes(tensor, quantizer=title, signed=self.modules[title].grid.signed)

    def tensor_name(self, node: fx.Node) -> str:
        return self.modules.free_name(tensor_name(node, self.makers))

    # what is left

    def observe_outputs(self, lasts: dict[str, fx.Node]) -> None:
        """Watch the range of what a quantized op gives, where no quantizer does: engines that round every output need it.

        ``lasts`` are the quantized ops, each with the last node of what it does by itself.
        """
        rounded = {tensor: title for title, tensor in self.calls if tensor.graph is self.graphs[EVAL]}
        for name, node in lasts.items():
            if "output" in self.roles[name]:
                continue
            last = behind_clamp(node)
            title = rounded.get(last)
            if title is None:
                title = self.tensor_name(last)
                twin = self.trained.get(self.makers.get(last, ""))
                if twin is None and TRAIN in self.graphs:
                    continue
                self.modules[title] = QuantizerSource(self.program).quantizer(title, {"kind": "observer"})
                if twin is not None:
                    self.call(TRAIN, title, twin.node, 0)
                rounded[last] = title
            self.roles[name]["output"] = title
