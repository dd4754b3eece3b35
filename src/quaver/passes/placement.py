"""From wishes to quantizers: which tensors share one, and where the graphs call them.

The passes say which inputs of which ops they want quantized. Here each wish becomes a quantizer call:

- a tensor that feeds several ops is quantized once;
- ops that only move or select values (a concatenation, a max pool, a reshape) cannot rescale, so their inputs and outputs
  share one quantizer;
- the evaluation graph decides, because it is what will run; the training graph gets the same quantizers at the same inputs.
"""

from collections import defaultdict
from typing import Any, Protocol

from torch import fx, nn

from quaver.graph.nodes import copy_graph, is_fake_quant, is_op, op_of, ops_by_name, packet, quantizer_of, tensor_notes
from quaver.int8.lowering import foldable_batch_norm
from quaver.operators import activation_inputs, channel_axis, keeps_range, never_negative, pair_axis, weight_of
from quaver.passes.reasons import CLAMPS, why_float
from quaver.passes.tensor_names import free_name, tensor_name
from quaver.program import EVAL, TRAIN, OpPlan, Placements, Program, Stage
from quaver.program.views import mount, read
from quaver.quantizers import PACT, Observer, Quantizer
from quaver.quantizers.make import make
from quaver.targets import TARGETS, Target

Ops = dict[str, dict[str, fx.Node]]
"""For each mode the nodes that are ops, by name, in graphs without quantizers."""
Asked = tuple[dict[str, OpPlan], dict[str, str]]
"""What a pass wants quantized, and what it declines and why."""


class Planner(Protocol):
    """Who decides where quantizers go: one of the quantizing passes."""

    @property
    def target(self) -> str:
        """The engine to place quantizers for."""

    def plan(self, ops: Ops, planned: dict[str, OpPlan]) -> Asked:
        """What to quantize beside what is planned already."""


def place(program: Program, *planners: Planner) -> Program:
    """A prepared program with a quantizer wherever one of these, or an earlier pass, plans one."""
    graphs = {mode: strip(graph) for mode, graph in program.graphs.items()}
    ops = {mode: ops_by_name(graph) for mode, graph in graphs.items()}
    planned, declined = dict(program.placements.plan), dict(program.placements.declined)
    for planner in planners:
        more, refused = planner.plan(ops, planned)
        planned |= more
        declined |= refused
    declined = {name: why for name, why in declined.items() if name not in planned}
    return _Placing(program, graphs, ops, planned, declined, TARGETS[planners[-1].target]).run()


def results(node: fx.Node) -> list[fx.Node]:
    """The tensors an op gives: itself, or the parts of a split."""
    parts = [user for user in node.users if user.op == "call_function" and packet(user) == "getitem"]
    return parts or [node]


def end_of(node: fx.Node) -> fx.Node:
    """The tensor that every engine writes for an op: behind its batch norm, and behind a clamp such as ReLU."""
    last = foldable_batch_norm(node) or node
    if len(last.users) == 1:
        (reader,) = last.users
        if is_op(reader) and op_of(reader).type in CLAMPS:
            return reader
    return last


def strip(graph: fx.Graph) -> fx.Graph:
    """A copy of the graph without quantizers and observers."""
    bare = copy_graph(graph)
    for node in list(bare.nodes):
        if is_fake_quant(node):
            node.replace_all_uses_with(node.args[0])
            bare.erase_node(node)
    return bare


class _Placing:
    def __init__(
        self,
        program: Program,
        graphs: dict[str, fx.Graph],
        ops: Ops,
        plan: dict[str, OpPlan],
        declined: dict[str, str],
        target: Target,
    ) -> None:
        self.old = program
        self.plan = plan
        self.declined = declined
        self.reasons = dict(declined)
        self.target = target
        self.graphs = graphs
        self.ops = ops
        self.types: dict[fx.Node, str] = {node: op_of(node).type for node in self.ops[EVAL].values()}
        self.root = program.placements.root or program.free_name("quantizers")
        self.modules: dict[str, Quantizer] = {}
        self.weights: dict[str, str] = {}
        self.roles: dict[str, dict[str, str]] = defaultdict(dict)
        # what lies on its inputs' grid, and the op that moved it there
        self.moved: dict[fx.Node, str] = {
            result: name
            for name, wish in plan.items()
            if wish.inputs and keeps_range(self.ops[EVAL][name], self.types[self.ops[EVAL][name]])
            for result in results(self.ops[EVAL][name])
        }

    def run(self) -> Program:
        for name, wish in self.plan.items():
            if wish.weight is not None:
                self.place_weight(name, wish.weight)
        groups = self.groups()
        known: dict[fx.Node, bool] = {}  # asked before the first quantizer stands in the way
        signed = [
            not (self.target.unsigned and all(never_negative(tensor, self.types, known) for tensor in self.sources(group)))
            for group in groups
        ]
        for group, one in zip(groups, signed, strict=True):
            self.place_group(group, one)
        self.observe_outputs()
        self.explain_the_rest()
        placements = Placements(
            root=self.root,
            plan=self.plan,
            declined=self.declined,
            reasons=self.reasons,
            quantizers={name: f"{self.root}.{name}" for name in self.modules},
            weights=self.weights,
            roles=dict(self.roles),
            quantized=frozenset(self.plan),
            target=self.target.name,
        )
        prepared = self.old.copy(graphs=self.graphs, stage=Stage.PREPARED, placements=placements)
        home = nn.Module()
        for name, module in self.modules.items():
            mount(home, name, module)
        prepared._modules[self.root] = home
        device = next((parameter.device for parameter in prepared.parameters()), None)
        home.to(device)
        home.train(prepared.training)
        return prepared

    # weights

    def place_weight(self, name: str, options: dict[str, Any]) -> None:
        node = self.ops[EVAL][name]
        op_type = op_of(node).type
        weight = weight_of(node, op_type)
        assert weight is not None
        parameter = str(weight.target)
        axis = channel_axis(op_type)
        title = parameter
        known = self.modules.get(title)
        if known is not None and known.axis not in (None, axis):  # one weight, used along two axes
            title = f"{parameter}_axis{axis % 2}"
        if title not in self.modules:
            shape = tuple(read(self.old, parameter).shape)
            own: dict[str, Any] = {"pairs": pair_axis(node, op_type, shape)} if options.get("pairs") else {}
            if "axis" in options:
                own["axis"] = axis
            self.modules[title] = self.quantizer(title, options | own)
            self.weights[title] = parameter
            if "axis" in own or options["kind"] == "learned_step":
                self.modules[title].begin(read(self.old, parameter).detach())
        self.roles[name]["weight"] = title
        for mode, ops in self.ops.items():
            if name in ops:
                stored = weight_of(ops[name], op_type)
                assert stored is not None
                placed = [user for user in stored.users if quantizer_of(user) == title]
                ops[name].replace_input_with(stored, placed[0] if placed else self.call(mode, title, stored, 0))

    # activations

    def groups(self) -> list[list[fx.Node]]:
        """The wished-for tensors of the evaluation graph, those that must share a range together, in graph order."""
        leader: dict[fx.Node, fx.Node] = {}

        def find(node: fx.Node) -> fx.Node:
            while leader.setdefault(node, node) is not node:
                leader[node] = leader[leader[node]]
                node = leader[node]
            return node

        for name, wish in self.plan.items():
            node = self.ops[EVAL][name]
            inputs = activation_inputs(node)
            wished = [inputs[position] for position in wish.inputs]
            linked = [*wished, *(result for result in results(node) if result in self.moved)]
            for tensor in wished:
                find(tensor)
            for tensor in linked if len(linked) > len(wished) else ():
                leader[find(tensor)] = find(linked[0])
        members: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in self.graphs[EVAL].nodes:
            if node in leader:
                members[find(node)].append(node)
        return list(members.values())

    def sources(self, group: list[fx.Node]) -> list[fx.Node]:
        """Those of a group that are computed, not moved: what a quantizer has to look at."""
        return [tensor for tensor in group if tensor not in self.moved]

    def place_group(self, group: list[fx.Node], signed: bool) -> None:
        sources = self.sources(group)
        readers = [(name, position, tensor) for tensor in group for name, position in self.wishes_on(tensor)]
        title = self.tensor_name(sources[0])
        wishes = [self.plan[name].inputs[position] for name, position, _ in readers]
        options = max(wishes, key=lambda wish: wish["bits"])  # the first, unless another reader asks for more bits
        self.modules[title] = self.quantizer(title, options | {"signed": signed, "narrow": False, "tensors": len(sources)})
        order = {tensor: index for index, tensor in enumerate(sources)}
        calls: dict[tuple[str, fx.Node], fx.Node] = {}
        for name, position, tensor in readers:
            role = "input" if len(self.plan[name].inputs) == 1 else f"input{position}"
            self.roles[name][role] = title
            index = order.get(tensor)
            self.read_quantized(EVAL, self.ops[EVAL][name], tensor, title, index, calls)
            if index is not None and name in self.ops[TRAIN]:
                # in training a moved tensor is on the grid already; rounding it twice would change nothing but the time
                reader, source = self.before_dropout(self.ops[TRAIN][name], position)
                self.read_quantized(TRAIN, reader, source, title, index, calls)
        for tensor in group:
            if tensor in self.moved:
                self.roles[self.moved[tensor]]["output"] = title

    def wishes_on(self, tensor: fx.Node) -> list[tuple[str, int]]:
        found = []
        for reader in tensor.users:
            if is_op(reader) and (op := op_of(reader)).name in self.plan:
                inputs = activation_inputs(reader)
                found += [(op.name, k) for k in self.plan[op.name].inputs if inputs[k] is tensor]
        return found

    def before_dropout(self, reader: fx.Node, position: int) -> tuple[fx.Node, fx.Node]:
        """The input to quantize in training: in front of a dropout, whose rescaled values never occur in evaluation."""
        source = activation_inputs(reader)[position]
        while is_op(source) and "dropout" in op_of(source).type:
            reader, source = source, source.args[0]  # type: ignore[assignment]
        return reader, source

    def read_quantized(
        self,
        mode: str,
        reader: fx.Node,
        tensor: fx.Node,
        title: str,
        index: int | None,
        calls: dict[tuple[str, fx.Node], fx.Node],
    ) -> None:
        if is_fake_quant(tensor):  # an op that reads one tensor twice, or a dropout that two ops share
            return
        if (mode, tensor) not in calls:
            calls[mode, tensor] = self.call(mode, title, tensor, index)
        reader.replace_input_with(tensor, calls[mode, tensor])

    # both

    def quantizer(self, title: str, options: dict[str, Any]) -> Quantizer:
        """A new quantizer, or the one that an earlier pass placed there with the same options."""
        module = make(title, options)
        if title in self.old.placements.quantizers:
            placed = self.old.quantizer(title)
            same = all(ours is theirs for ours, theirs in zip(module.made_of, placed.made_of, strict=True))
            if (same or isinstance(module.preprocess, PACT)) and placed.options() == module.options():
                return placed
        return module

    def call(self, mode: str, title: str, tensor: fx.Node, index: int | None) -> fx.Node:
        graph, anchor = self.graphs[mode], tensor
        while anchor.next.op == "placeholder":  # inputs stay in front
            anchor = anchor.next
        with graph.inserting_after(anchor):
            node = graph.create_node("call_module", f"{self.root}.{title}", (tensor, index))
        node.meta = tensor_notes(tensor, quantizer=title, signed=self.modules[title].grid.signed)
        return node

    def tensor_name(self, node: fx.Node) -> str:
        return free_name(tensor_name(node, self.graphs[EVAL], self.old.signature), self.modules)

    # what is left

    def observe_outputs(self) -> None:
        """Watch the range of what a quantized op gives, where no quantizer does: engines that round every output need it."""
        rounded = {node.args[0]: quantizer_of(node) for node in self.graphs[EVAL].nodes if is_fake_quant(node)}
        for name in self.plan:
            if "output" in self.roles[name]:
                continue
            last = end_of(self.ops[EVAL][name])
            title = rounded.get(last)
            if title is None:
                title = self.tensor_name(last)
                twin = self.ops[TRAIN].get(op_of(last).name) if is_op(last) else None
                if twin is None:
                    continue
                known = self.old.placements.quantizers
                placed = self.old.quantizer(title) if title in known else None
                self.modules[title] = placed if isinstance(placed, Observer) else Observer()
                self.call(TRAIN, title, twin, 0)
                rounded[last] = title
            self.roles[name]["output"] = title

    def explain_the_rest(self) -> None:
        only_trained = [name for name in self.ops[TRAIN] if name not in self.ops[EVAL]]
        self.reasons = why_float(self.ops[EVAL], frozenset(self.plan), self.reasons)
        self.reasons |= dict.fromkeys(only_trained, "runs only in training")
