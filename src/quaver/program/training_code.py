"""The training graph as something to call, with all its weights rounded by one kernel where kernels are wanted."""

from typing import Any

import torch
from torch import fx, nn

from quaver.graph.nodes import is_fake_quant
from quaver.program.views import Executable, read
from quaver.quantizers import fused


class TrainingCode(Executable):
    """A training graph. It rounds each weight where it is read, unless they were all rounded before (`QUAVER_FUSED`).

    What a step hands to the quantizers is gone with the step: nothing of it is state. A weight that was written to in
    between is rounded anew, unless it was written to behind torch's back, through ``.data``.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        super().__init__(root, graph)
        rounding = [node for node in graph.nodes if is_fake_quant(node) and node.args[0].op == "get_attr"]
        self.__weights = [(str(node.target), str(node.args[0].target)) for node in rounding]  # a name that no child has

    def forward(self, *inputs: Any) -> Any:
        """Run the graph."""
        if torch.compiler.is_compiling() or not fused.switched_on():
            return super().forward(*inputs)
        from quaver.quantizers.fused.grouped_weights import rounded_together  # needs Triton

        with rounded_together((read(self, quantizer), read(self, weight)) for quantizer, weight in self.__weights):
            return super().forward(*inputs)
