"""The training graph as something to call, in the form that takes least time and memory; what it computes stays the same."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.module import _has_any_global_hook

from quaver.graph.nodes import clamp_bounds, facts, is_fake_quant, packet
from quaver.program.stateful_ops import counted_together, counting_nodes
from quaver.program.views import Executable, Readings
from quaver.quantizers import Quantizer, fused, kept_integers
from quaver.quantizers.eager_calls import is_eager_now
from quaver.quantizers.in_blocks import RELU, RELU6, Clamp
from quaver.quantizers.kept_integers import multiplying, reading


class TrainingCode(Executable):
    """A training graph. It rounds each weight where it is read, unless they all were before (`quaver.quantizers.fused`).

    What a step hands to the quantizers is gone with the step: nothing of it is state. A weight that was written to in
    between is rounded anew, unless it was written to behind torch's back, through ``.data``.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        rounding = [node for node in graph.nodes if is_fake_quant(node) and node.args[0].op == "get_attr"]
        weights = [(str(node.target), str(node.args[0].target), _is_multiplied(node)) for node in rounding]
        keeping = deepcopy(graph)
        for form in (graph, keeping):
            multiplied = {node for node in form.nodes if is_fake_quant(node) and _is_multiplied(node)}
            if form is keeping:
                keep_integers(form)
            round_in_one(form, multiplied)
        super().__init__(root, graph)
        # names that no child has
        self.__run_keeping = Executable(root, keeping).forward
        norms = [str(module.target) for module in counting_nodes(graph)]
        self.__readings = Readings([*norms, *(path for one, weight, _ in weights for path in (one, weight))])
        places = {path: place for place, path in enumerate(self.__readings.names)}
        self.__norms = len(norms)
        self.__weights = [(places[one], places[weight], multiplied) for one, weight, multiplied in weights]
        self.__together: Any = None

    def forward(self, *inputs: Any) -> Any:
        """Run the graph."""
        if torch.compiler.is_compiling():
            return super().forward(*inputs)
        run = self.__run_keeping if kept_integers.are_wanted() else super().forward
        there = self.__readings.values(self)
        weights = [(there[one], there[weight], multiplied) for one, weight, multiplied in self.__weights]
        with counted_together(there[: self.__norms] if is_eager_now() else ()):
            if not weights or not fused.suits(weights[0][1]):
                return run(*inputs)
            if self.__together is None:
                from quaver.quantizers.fused.grouped_weights import WeightsTogether  # needs Triton

                self.__together = WeightsTogether()
            with self.__together.rounded(weights):
                return run(*inputs)


def keep_integers(graph: fx.Graph) -> None:
    """Let those that save what they read keep the integers of rounded tensors, moved or not, for backward."""
    rounded = set()
    for node in graph.nodes:
        kind = facts(node).kind
        reads = node.op == "call_function" and any(given in rounded for given in node.all_input_nodes)
        if is_fake_quant(node) or (reads and kind == "move"):
            rounded.add(node)
        if reads and kind in PRODUCTS:
            node.target = _keeping(multiplying, node.target)
        elif reads and packet(node) in SAVING:
            node.target = _keeping(reading, node.target)


def _is_multiplied(node: fx.Node) -> bool:
    """Whether nothing but products reads a tensor, moved or not: under autocast they read it in another dtype."""
    return all(
        (facts(user).kind == "move" and _is_multiplied(user)) or (facts(user).kind in PRODUCTS and node in user.args[:2])
        for user in node.users
    )


PRODUCTS = ("convolution", "linear", "matrix product")
SAVING = ("mul", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d")


@cache
def _keeping(call: Any, op: Any) -> Any:
    """``op``, called so, under a name of its own, by which the code of a graph knows it."""

    def keeping(*args: Any, **options: Any) -> Any:
        return call(op, *args, **options)

    keeping.__name__ = f"keeping_{str(op).replace('.', '_')}"
    return keeping


def round_in_one(graph: fx.Graph, multiplied: set[fx.Node]) -> None:
    """Let a quantizer do what a ReLU or ReLU6 does in front of it, where nobody else reads that, and a cast behind it."""
    for node in list(graph.nodes):
        if not is_fake_quant(node) or node.args[0].op == "get_attr":
            continue
        given = node.args[0]
        clamp = _clamp(given) if len(given.users) == 1 else None
        if clamp is None and node not in multiplied:
            continue
        x = given if clamp is None else given.args[0]
        with graph.inserting_before(node):
            arguments = (graph.get_attr(node.target), x, *node.args[1:])
            both = graph.call_function(_rounding(clamp, node in multiplied), arguments)
        both.meta = dict(node.meta)
        node.replace_all_uses_with(both)
        graph.erase_node(node)
        if clamp is not None:
            graph.erase_node(given)


def _clamp(node: fx.Node) -> Clamp | None:
    if node.op != "call_function" or packet(node) not in ("relu", "relu6", "hardtanh"):
        return None
    bounds = clamp_bounds(node)
    return next((clamp for clamp in (RELU, RELU6) if clamp == bounds), None)


@cache
def _rounding(clamp: Clamp | None, multiplied: bool) -> Callable[..., Tensor]:
    """A quantizer, with the activation in front of it and the cast behind it, under a name of its own."""

    def rounded(quantizer: Quantizer, x: Tensor, tensor: int | None = 0) -> Tensor:
        hooked = quantizer._forward_hooks or quantizer._forward_pre_hooks  # they see what is rounded
        hooked = hooked or _has_any_global_hook()  # type: ignore[no-untyped-call]
        done = None if torch.compiler.is_compiling() or hooked else quantizer.in_one(x, clamp, tensor, multiplied)
        if done is not None:
            return done
        return quantizer(x if clamp is None else clamp(x), tensor)  # type: ignore[no-any-return]

    rounded.__name__ = f"rounded_{0 if clamp is None else clamp.high}_{multiplied}".replace(".", "_")
    return rounded
