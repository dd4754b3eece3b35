"""The second pass: quantizers for ops without weights, so that the path between convolutions stays in integers."""

from dataclasses import dataclass

from torch import fx

from quaver.checking import boolean, names
from quaver.config.options import like, lists_options, option
from quaver.graph.nodes import OpNode, reads_parameter, results, with_values
from quaver.graph.patterns import ends_layer
from quaver.operators import OP_TYPES, WEIGHTED
from quaver.passes.placement import Ops
from quaver.passes.quantize_inputs import InputQuantizers, unquantizable
from quaver.passes.quantizer_groups import Plan
from quaver.program import EVAL, TRAIN, OpPlan
from quaver.program.reason import READ_IN_FLOAT, Because, Reason

WITHOUT_WEIGHT = OP_TYPES - WEIGHTED


@lists_options
@dataclass(frozen=True, kw_only=True)
class AddQuantDequantPass(InputQuantizers):
    """Rewrite ``x + y`` as ``fq(x) + fq(y)`` for every op listed that has no weight.

    Where the target adds inside the convolution, ``conv + y`` becomes ``conv + fq(y)``: the sum is rounded once, behind it.
    Ops that only move values share one quantizer between inputs and outputs. With ``leave_outputs_float``, those of them
    that no quantized op computes on (the reshape of a detection head) are left alone. With ``leave_products_float``, so
    are matrix products of two activations: a weight can be kept from overflowing 16 bits, an activation cannot.
    """

    quantizable_op_type: str | tuple[str, ...] | list[str] = like(
        InputQuantizers, "quantizable_op_type", default=("elementwise_add", "pool2d"), rule=names(WITHOUT_WEIGHT)
    )
    leave_outputs_float: bool = option(False, boolean(), "Ops that only move values to an output stay float.")
    leave_products_float: bool = option(False, boolean(), "Matrix products of two activations stay float.")

    def plan(self, ops: Ops, planned: Plan) -> tuple[Plan, dict[str, Reason]]:
        """The inputs of the listed ops."""
        plan: Plan = {}
        declined: dict[str, Reason] = {}
        varying = with_values(next(iter(ops[EVAL].values())).node.graph) if ops[EVAL] else set()
        for name, op in ops[EVAL].items():
            if op.type not in self.quantizable_op_type or name in planned:
                continue
            if why := self.skipped_by(op) or self.decline(op, ops[TRAIN].get(name)):
                declined[name] = why
            elif op.facts.kind != "move" and not varying.issuperset(op.inputs):
                declined[name] = Because("one of its operands is the same for all images: made of parameters and sizes")
            else:
                plan[name] = OpPlan(None, dict.fromkeys(self.rounded(op), self.input_options(op)))
        if self.leave_outputs_float:
            self.drop_outputs(ops[EVAL], planned | plan, plan, declined)
        return plan, declined

    def decline(self, op: OpNode, twin: OpNode | None) -> Because | None:
        """Why the op stays float, or nothing."""
        if reads_parameter(op.node):
            return Because("one of its operands is a parameter of the model, such as a bias")
        if self.leave_products_float and op.type == "matmul":
            return Because(
                "products of two activations can overflow 16 bits without VNNI; saturation_safe=False quantizes it"
            )
        return unquantizable(op, twin)

    def rounded(self, op: OpNode) -> list[int]:
        """The inputs to round: all, less the convolution that the target adds to before it rounds."""
        positions = list(range(len(op.inputs)))
        if op.type == "elementwise_add" and self.engine.fuses_add and op.inputs[0] is not op.inputs[-1]:
            for position, value in enumerate(op.inputs):
                if ends_layer(value):
                    return [other for other in positions if other != position]
        return positions

    def drop_outputs(self, ops: dict[str, OpNode], wanted: Plan, plan: Plan, declined: dict[str, Reason]) -> None:
        """Take ops that only move values out of the plan again, where nothing behind them computes on integers."""
        useful: set[fx.Node] = set()
        for name, op in reversed(ops.items()):
            if name not in wanted:
                continue
            if op.facts.kind != "move" or any(reader in useful for result in results(op.node) for reader in result.users):
                useful.add(op.node)
            elif name in plan:
                del plan[name]
                declined[name] = READ_IN_FLOAT
