"""The ops of a program as it is now, each with its record: whether it is quantized, why not, and its thresholds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from quaver.graph.nodes import Op, op_of, ops_by_name
from quaver.program.reason import Because
from quaver.program.record import OpRecord
from quaver.program.stage import Stage
from quaver.quantizers import Quantizer

if TYPE_CHECKING:
    from quaver.program.program import Program


def ops_of(graphs: Mapping[str, fx.Graph]) -> list[Op]:
    """Every op once: those of the evaluation graph, and those that run only in training."""
    evaluated, trained = (ops_by_name(graphs[mode]) if mode in graphs else {} for mode in ("eval", "train"))
    return list(map(op_of, (evaluated | {name: trained[name] for name in trained if name not in evaluated}).values()))


def recorded_ops(program: "Program") -> list[OpRecord]:
    """A record of each op."""
    placed, quantizers = program.placements, dict(program.quantizers())
    thresholds = {name: _threshold(program, name, quantizer) for name, quantizer in quantizers.items()}
    is_float = program.stage is Stage.FLOAT
    unplanned = Because("the program is not quantized yet" if is_float else "no pass was asked to quantize it")
    records = []
    for op in ops_of(program.graphs):
        quantized = op.name in placed.quantized
        why = None if quantized else placed.reasons.get(op.name, unplanned)
        own = {role: list(thresholds[name]) for role, name in placed.roles.get(op.name, {}).items()}
        records.append(OpRecord(op.name, op.type, op.scope, op.source, quantized, why, own))
    return records


@torch.no_grad()
def _threshold(program: "Program", name: str, quantizer: Quantizer) -> Any:
    if name in program.placements.weights:  # from the weight as it is, not from the last forward
        return quantizer.range_for(program.weight(name), None)[0].flatten().tolist()
    seen = quantizer.seen
    return [] if seen is not None and not seen else quantizer.threshold.flatten().tolist()
