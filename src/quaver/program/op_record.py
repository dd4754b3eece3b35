"""What a program says about its ops: a plain record of each, whether it is quantized, why not, and its thresholds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from quaver.graph.nodes import Op, calls, op_of, ops_by_name
from quaver.program.reason import ONLY_IN_TRAINING, READ_BY_NOBODY, Because, Reason
from quaver.program.stage import Stage
from quaver.quantizers import Quantizer
from quaver.records import Figure, decoded

if TYPE_CHECKING:
    from quaver.program.program import Program

_LEARNING = ("batch_norm", "synced_batch_norm", "instance_norm")
"""Ops that leave statistics in buffers."""


@dataclass(frozen=True)
class OpRecord:
    """One op of a program: what it is, whether it computes on integers, and if not, why; ``reason`` says so in words.

    ``thresholds`` maps what was quantized (``input``, ``weight``, ``output`` …) to its absolute maximum: one number, one
    per channel, or none as long as no data was seen.
    """

    name: str
    type: str
    scope: str
    source: str
    quantized: bool
    why: Reason | None = None
    thresholds: dict[str, list[float]] = field(default_factory=dict)
    reason: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", "" if self.why is None else self.why.words())


def why_in(record: dict[str, Any]) -> Reason | None:
    """Why an op is float, by its record as JSON; an older one has the sentence alone."""
    return decoded(Reason | None, record.get("why", record["reason"] or None))  # type: ignore[no-any-return]


def read_record(value: Any) -> OpRecord:
    """A record from JSON, checked; a threshold may be NaN, of a program that saw it."""
    record: OpRecord = decoded(OpRecord, value | {"why": None, "thresholds": {}})
    return replace(record, why=why_in(value), thresholds=decoded(dict[str, list[Figure]], value["thresholds"]))


def ops_of(graphs: Mapping[str, fx.Graph]) -> list[Op]:
    """Every op once: those of the evaluation graph, and those that run only in training."""
    evaluated, trained = ops_by_name(graphs["eval"]), ops_by_name(graphs["train"]) if "train" in graphs else {}
    return list(map(op_of, (evaluated | trained | evaluated).values()))  # in this order, and those of evaluation count


def recorded_ops(program: "Program") -> list[OpRecord]:
    """A record of each op."""
    placed, quantizers = program.placements, dict(program.quantizers())
    thresholds = {name: _threshold(program, name, quantizer) for name, quantizer in quantizers.items()}
    is_float = program.stage is Stage.FLOAT
    unplanned = Because("the program is not quantized yet" if is_float else "no pass was asked to quantize it")
    reasons = placed.reasons | _left_out(program.graphs)
    records = []
    for op in ops_of(program.graphs):
        quantized = op.name in placed.quantized
        why = None if quantized else reasons.get(op.name, unplanned)
        own = {role: list(thresholds[name]) for role, name in placed.roles.get(op.name, {}).items()}
        records.append(OpRecord(op.name, op.type, op.scope, op.source, quantized, why, own))
    return records


def _left_out(graphs: Mapping[str, fx.Graph]) -> dict[str, Reason]:
    """Why evaluation has no op of these names: training alone needs them, or nobody does."""
    if "train" not in graphs:
        return {}
    evaluated, trained = ops_by_name(graphs["eval"]), ops_by_name(graphs["train"])
    left_out = {name: node for name, node in trained.items() if name not in evaluated}
    needed = _needed(graphs["train"]) if left_out else set()
    return {name: ONLY_IN_TRAINING if node in needed else READ_BY_NOBODY for name, node in left_out.items()}


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that outputs are computed from, or what a graph writes: statistics of norms, and the model's buffers."""
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        writes = node.op == "output" or calls(node, *_LEARNING) or (node.op == "call_function" and node.is_impure())
        if writes or not needed.isdisjoint(node.users):
            needed.add(node)
    return needed


@torch.no_grad()
def _threshold(program: "Program", name: str, quantizer: Quantizer) -> Any:
    if name in program.placements.weights:  # from the weight as it is, not from the last forward
        return quantizer.range_for(program.weight(name), None)[0].flatten().tolist()
    seen = quantizer.seen
    return [] if seen is not None and not seen else quantizer.threshold.flatten().tolist()
