"""The float and the quantized network side by side, node by node, all batches at once: each layer is met with what it gets.

A layer that is changed when the sweep comes to it is changed for all that follow: what they are given are its new outputs.
Every layer is run once or twice, however deep it lies. Only what is still to be read is kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from quaver.graph.nodes import is_fake_quant, is_parameter, quantizer_of
from quaver.program import EVAL, Program
from quaver.program.views import read, value_of

Values = list[Any]
"""What a node gives, batch by batch."""


@dataclass
class Both:
    """A node's values in the float network, and in the quantized one."""

    floating: Values
    rounded: Values


class Sweep:
    """Runs the evaluation graphs of ``program``, quantized, and of ``reference``, its twin with the weights as they were.

    ``visit`` is told each node, in order, when its values in the float network are there and those in the quantized one are
    not: it may change the program, and ask for what the node is given.
    """

    def __init__(self, program: Program, reference: Program, batches: list[list[Tensor]]) -> None:
        self.program, self.reference, self.batches = program, reference, batches
        self.graph = program.graphs[EVAL]
        self.values: dict[fx.Node, Both] = {}
        self._weights: dict[fx.Node, Tensor] = {}
        self._last_use = {value: node for node in self.graph.nodes for value in node.all_input_nodes}

    @torch.no_grad()
    def run(self, visit: Callable[[fx.Node], None]) -> Iterator[fx.Node]:
        """Go through the graph; gives each node when its values are there."""
        inputs = iter(zip(*self.batches, strict=True))
        for node in self.graph.nodes:
            if node.op == "output":
                return
            if node.op == "placeholder":
                given = list(next(inputs))
                # copies, for a model may write into its input
                self.values[node] = Both([x.clone() for x in given], [x.clone() for x in given])
            elif not self._is_read_when_asked(node):
                self.values[node] = Both(self.computed(node, floating=True), [])
                visit(node)
                self.values[node].rounded = self.computed(node)
            yield node
            for value in node.all_input_nodes:
                if self._last_use[value] is node:
                    self.values.pop(value, None)

    def _is_read_when_asked(self, node: fx.Node) -> bool:
        """Whether a node is a tensor of the model or its quantizer: both change when their layer is met."""
        return node.op == "get_attr" or (is_fake_quant(node) and is_parameter(node.args[0]))

    def computed(self, node: fx.Node, *, floating: bool = False) -> Values:
        """What a node makes of its inputs as they are now."""
        self._weights.clear()  # rounded once for all batches, and anew when they may have been changed
        return [self.compute(node, batch, floating) for batch in range(len(self.batches))]

    def compute(self, node: fx.Node, batch: int, floating: bool) -> Any:
        """What a node makes of its inputs for one batch."""
        args: Any = fx.map_arg(node.args, lambda n: self.value(n, batch, floating))
        kwargs: Any = fx.map_arg(node.kwargs, lambda n: self.value(n, batch, floating))
        if is_fake_quant(node):
            return args[0] if floating else self.program.quantizer(quantizer_of(node))(*args)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def value(self, node: fx.Node, batch: int, floating: bool) -> Any:
        """What a node gave for a batch; a tensor of the model as it is now."""
        if node in self.values:
            both = self.values[node]
            return (both.floating if floating else both.rounded)[batch]
        if node.op == "get_attr":
            return read(self.reference if floating else self.program, str(node.target))
        source: Any = node.args[0]
        if floating:
            return value_of(self.reference, source)
        if node not in self._weights:
            self._weights[node] = self.program.quantizer(quantizer_of(node))(value_of(self.program, source))
        return self._weights[node]
