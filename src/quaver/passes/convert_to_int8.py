"""The fourth pass: integers that were stored as float32 are stored as int8."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from quaver.config.options import lists_options
from quaver.graph.copying import copy_graph
from quaver.passes.base import SaidTypes
from quaver.program import EVAL, Program, Stage
from quaver.program.views import parent_module, read


@lists_options
@dataclass(frozen=True, kw_only=True)
class ConvertToInt8Pass(SaidTypes):
    """Rewrite ``dequantize(to_int8(float weight))`` as ``dequantize(int8 weight)``.

    The same integers in a quarter of the memory: the output is bit-equal, and the program still runs.
    """

    needs: ClassVar = (Stage.FROZEN,)
    otherwise: ClassVar = "Freeze the trained program first (QuantizationFreezePass, or quaver.convert)."

    def rewrite(self, program: Program) -> Program:
        """Store what is behind a cast to int8 as int8, and drop the cast."""
        graph = copy_graph(program.graphs[EVAL])
        whole = set()
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.to.dtype):
            stored = node.args[0]
            if node.args[1:] == (torch.int8,) and stored.op == "get_attr":  # type: ignore[union-attr]
                whole.add(stored.target)  # type: ignore[union-attr]
                node.replace_all_uses_with(stored)  # type: ignore[arg-type]
                graph.erase_node(node)
        tensors = nn.Module()
        for path in {node.target: None for node in graph.nodes if node.op == "get_attr"}:
            place, leaf = parent_module(tensors, path)
            value = read(program, path)
            if isinstance(value, nn.Parameter):
                kept = value.to(torch.int8) if path in whole else value.detach().clone()
                place.register_parameter(leaf, nn.Parameter(kept, requires_grad=False))
            elif isinstance(value, torch.Tensor):
                place.register_buffer(leaf, value.clone())
            else:
                place.add_module(leaf, value)
        return program.copy(tensors=tensors, graphs={EVAL: graph}, stage=Stage.INT8)
