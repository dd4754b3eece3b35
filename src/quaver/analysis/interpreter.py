"""Run a program's evaluation graph and look at its tensors, one batch at a time, keeping none."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from quaver.analysis.sites import Site
from quaver.int8.kernels import quantizer_integers
from quaver.program import EVAL, Program
from quaver.program.views import read

Look = Callable[[Site, Tensor, Any], None]
"""Told a site, its tensor, and the step that the tensor is counted in (1 for real numbers)."""


class FloatInterpreter(fx.Interpreter):
    """The float network of a program in evaluation: quantizers let values pass, and nothing is spent on rounding."""

    def __init__(self, program: Program, graph: fx.Graph | None = None) -> None:
        super().__init__(program, garbage_collect_values=True, graph=graph or program.graphs[EVAL])
        self.program = program

    @torch.no_grad()
    def outputs(self, tensors: list[Any]) -> list[Any]:
        """The outputs for one batch; both are flat lists."""
        return list(self.run(*tensors))

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a quantizer is given."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What stands at a path in the program's own tables, where no method can hide a child's name."""
        return read(self.program, target)


class WatchingInterpreter(FloatInterpreter):
    """A program in evaluation that shows each site's tensor to ``look`` when it is computed.

    With ``rounding`` it computes what the program computes, on integers.
    """

    def __init__(self, program: Program, sites: list[Site], look: Look, *, rounding: bool) -> None:
        became: dict[fx.Node, fx.Node] = {}
        graph = None
        if rounding:
            lowering = program.engine.lowering()
            graph = lowering.run(program.graphs[EVAL])
            became = lowering.became()
        super().__init__(program, graph)
        self.look, self.rounding = look, rounding
        self.before: dict[fx.Node, Site] = {}
        self.behind: dict[fx.Node, Site] = {}
        for site in sites:
            node = became.get(site.node, site.node)
            if not site.rounded:
                self.behind[node] = site
            elif node.target is operator.getitem:  # it picks the integers from integers and step
                self.before[node.args[0]] = site  # type: ignore[index]
            else:
                self.before[node] = site

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node; show what it rounds, or what it gave."""
        if n in self.before:
            self.look(self.before[n], *self._to_round(n))
        result = super().run_node(n)
        if n in self.behind and isinstance(result, Tensor):
            self.look(self.behind[n], result, 1.0)
        return result

    def _to_round(self, n: fx.Node) -> tuple[Tensor, Any]:
        """The tensor that a node is about to round, and what it is counted in."""
        args, _ = self.fetch_args_kwargs_from_env(n)
        if n.target is quantizer_integers:  # quantizer, x, shifted, unit …
            return args[1], args[3] if len(args) > 3 else 1.0
        if n.op == "call_module":
            return args[0], 1.0
        return args[0], args[5] if len(args) > 5 else 1.0  # x, scale, low, high, shifted, unit …

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a quantizer makes of a tensor; without rounding, the tensor."""
        return read(self.program, target)(*args, **kwargs) if self.rounding else super().call_module(target, args, kwargs)
