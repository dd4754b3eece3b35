"""The second pass: quantizers for ops without weights, so that the path between convolutions stays in integers."""

from dataclasses import dataclass
from typing import ClassVar

from torch import fx

from quaver.config.check import boolean, names
from quaver.graph.nodes import is_parameter, op_of, results
from quaver.operators import CONVOLUTIONS, OP_TYPES, activation_inputs, keeps_range
from quaver.passes.base import Pass
from quaver.passes.placement import Asked, Ops, place
from quaver.passes.wishes import InputQuantizers, ends_convolution, skipped_by, unquantizable
from quaver.program import EVAL, TRAIN, OpPlan, Program, Stage
from quaver.targets import TARGETS

WITHOUT_WEIGHT = OP_TYPES - CONVOLUTIONS - {"mul"}


@dataclass(frozen=True, kw_only=True)
class AddQuantDequantPass(InputQuantizers, Pass):
    """Rewrite ``x + y`` as ``fq(x) + fq(y)`` for every op listed that has no weight.

    Where the target adds inside the convolution, ``conv + y`` becomes ``conv + fq(y)``: the sum is rounded once, behind it.
    Ops that only move values share one quantizer between inputs and outputs. With ``leave_outputs_float``, those of them
    that no quantized op computes on (the reshape of a detection head) are left alone. With ``leave_products_float``, so
    are matrix products of two activations: a weight can be kept from overflowing 16 bits, an activation cannot.
    """

    needs: ClassVar = (Stage.FLOAT, Stage.PREPARED)
    otherwise: ClassVar = "Quantizers go into the float program, before it is trained and frozen."

    own_rules: ClassVar = {
        "quantizable_op_type": names(WITHOUT_WEIGHT),
        "leave_outputs_float": boolean(),
        "leave_products_float": boolean(),
    }

    quantizable_op_type: tuple[str, ...] | list[str] = ("elementwise_add", "pool2d")
    leave_outputs_float: bool = False
    leave_products_float: bool = False

    def rewrite(self, program: Program) -> Program:
        """Quantizers where `plan` says."""
        return place(program, self)

    def plan(self, ops: Ops, planned: dict[str, OpPlan]) -> Asked:
        """The inputs of the listed ops."""
        plan: dict[str, OpPlan] = {}
        declined: dict[str, str] = {}
        for name, node in ops[EVAL].items():
            op = op_of(node)
            if op.type not in self.quantizable_op_type or name in planned:
                continue
            inputs = activation_inputs(node)
            declined[name] = skipped_by(op, self.skip_pattern) or self.decline(node, inputs, ops[TRAIN].get(name))
            if not declined[name]:
                plan[name] = OpPlan(None, dict.fromkeys(self.rounded(node, inputs), self.input_options(op)))
        if self.leave_outputs_float:
            self.drop_outputs(ops[EVAL], planned | plan, plan, declined)
        return plan, {name: why for name, why in declined.items() if why}

    def decline(self, node: fx.Node, inputs: list[fx.Node], twin: fx.Node | None) -> str:
        """Why the op stays float, or nothing."""
        if any(is_parameter(value) for value in node.all_input_nodes):
            return "one of its operands is a parameter of the model, such as a bias"
        if self.leave_products_float and op_of(node).type == "matmul":
            return "products of two activations can overflow 16 bits without VNNI; saturation_safe=False quantizes it"
        return unquantizable(inputs, twin)

    def rounded(self, node: fx.Node, inputs: list[fx.Node]) -> list[int]:
        """The inputs to round: all, less the convolution that the target adds to before it rounds."""
        if op_of(node).type == "elementwise_add" and TARGETS[self.target].fuses_add and inputs[0] is not inputs[-1]:
            for position, value in enumerate(inputs):
                if ends_convolution(value):
                    return [other for other in range(len(inputs)) if other != position]
        return list(range(len(inputs)))

    def drop_outputs(
        self, ops: dict[str, fx.Node], wanted: dict[str, OpPlan], plan: dict[str, OpPlan], declined: dict[str, str]
    ) -> None:
        """Take back wishes for moving ops that lead to no computation on integers."""
        useful: set[fx.Node] = set()
        for name, node in reversed(ops.items()):
            if name not in wanted:
                continue
            moves = keeps_range(node, op_of(node).type)
            readers = [reader for result in results(node) for reader in result.users]
            if not moves or any(reader in useful for reader in readers):
                useful.add(node)
            elif name in plan:
                del plan[name]
                declined[name] = "no quantized op computes on its output"
