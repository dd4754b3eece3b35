"""Which of the trained ops run in int8, chosen at conversion: the others give up the rounding of what they read."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import fx

from quaver.checking import names, several
from quaver.config.options import Checked, lists_options, option
from quaver.errors import ConfigError
from quaver.graph.copying import copy_graph
from quaver.graph.nodes import is_dequantize, is_quantize, ops_by_name
from quaver.operators import OP_TYPES
from quaver.passes.base import Pass
from quaver.program import EVAL, Program, Stage
from quaver.program.op_record import OpRecord
from quaver.program.reason import Because, ComputedWith


@lists_options
@dataclass(frozen=True, kw_only=True)
class ChooseInt8Ops(Checked, Pass):
    """Rewrite ``conv(dequantize(quantize(x)), w)`` as ``conv(x, w)`` wherever an op is not of a type that was chosen.

    Such an op computes in float, with the weights as they were rounded in training. What the program computes is still what
    is deployed: the file of it is compared with it as ever.
    """

    needs: ClassVar = (Stage.FROZEN,)
    otherwise: ClassVar = "Freeze the trained program first (QuantizationFreezePass, or quaver.convert)."

    quantized_ops: str | tuple[str, ...] | list[str] = option((), names(OP_TYPES), "The types of the ops that run in int8.")

    def check(self, program: Program) -> None:
        """Refuse a choice that leaves nothing in int8, too."""
        super().check(program)
        trained = {op.type for op in program.ops() if op.quantized}
        if not trained & {*several(self.quantized_ops)}:
            raise ConfigError(
                f"quantized_ops={','.join(several(self.quantized_ops))}: no op of these types was trained with quantizers. "
                f"Those that were: {', '.join(sorted(trained)) or 'none'}."
            )

    def rewrite(self, program: Program) -> Program:
        """Take the rounding from in front of every op that is to be float, and say why it is."""
        chosen = {*several(self.quantized_ops)}
        left = {op.name for op in program.ops() if op.quantized and op.type not in chosen}
        graph = copy_graph(program.graphs[EVAL])
        nodes = ops_by_name(graph)
        for name in left & nodes.keys():
            _read_unrounded(nodes[name])
        for node in reversed(list(graph.nodes)):
            if (is_quantize(node) or is_dequantize(node)) and not node.users:
                graph.erase_node(node)
        records = tuple(_record(op, left) for op in program.ops())
        return program.copy(graphs={EVAL: graph}, records=records)


def _read_unrounded(node: fx.Node) -> None:
    for read in node.all_input_nodes:
        if is_dequantize(read) and is_quantize(read.args[0]):
            whole: Any = read.args[0]
            node.replace_input_with(read, whole.args[0])


def _record(op: OpRecord, left: set[str]) -> OpRecord:
    if op.name in left:
        why = Because(f"{op.type!r} was not chosen to run in int8 when the program was converted")
        return replace(
            op,
            quantized=False,
            why=why,
            thresholds={role: value for role, value in op.thresholds.items() if role == "weight"},
        )
    if isinstance(op.why, ComputedWith) and op.why.host in left:
        return replace(op, why=Because(f"computed with {op.why.host!r}, which runs in float"))
    return op
