"""What rounding costs each layer, from what it costs the tensors that the layer reads."""

import math

from torch import fx

from quaver.analysis.findings import LayerStatistics, TensorStatistics, WeightStatistics
from quaver.analysis.sites import Site
from quaver.graph.nodes import (
    is_dequantize,
    is_fake_quant,
    is_op,
    is_parameter,
    is_quantize,
    op_of,
    quantizer_of,
    stored_weight,
)
from quaver.program import EVAL, Program
from quaver.program.quantized_tensors import quantized_tensors


def statistics_of_layers(
    program: Program, sites: list[Site], tensors: list[TensorStatistics], weights: list[WeightStatistics]
) -> list[LayerStatistics]:
    """A record for every quantized op, in the order of the graph."""
    quantized = {record.name for record in program.ops() if record.quantized}
    tensors_by_name = {tensor.name: tensor for tensor in tensors}
    weights_by_name = {weight.name: weight for weight in weights}
    by_node = {site.node: site.name for site in sites if site.rounded}
    for tensor in quantized_tensors(program):
        if tensor.moved_from in by_node:  # one that was moved has the name of its source
            by_node[tensor.dequantize] = by_node[tensor.moved_from]
    by_quantizer = {site.quantizer: site.name for site in reversed(sites) if site.rounded}
    records = []
    for node in program.graphs[EVAL].nodes:
        if not is_op(node) or op_of(node).name not in quantized:
            continue
        op = op_of(node)
        read = [name for value in node.all_input_nodes if (name := _tensor(value, by_node, by_quantizer))]
        weight = next((name for value in node.all_input_nodes if (name := _weight(value))), None)
        inputs = [tensors_by_name[name] for name in dict.fromkeys(read) if name in tensors_by_name]
        own = weights_by_name.get(weight) if weight is not None else None
        input_db = min((tensor.sqnr_db for tensor in inputs if tensor.sqnr_db is not None), default=None)
        weight_db = None if own is None else own.sqnr_db
        records.append(
            LayerStatistics(
                name=op.name,
                type=op.type,
                scope=op.scope,
                inputs=[tensor.name for tensor in inputs],
                weight=None if own is None else own.name,
                activation_bits=inputs[0].bits if inputs else None,
                weight_bits=None if own is None else own.bits,
                input_sqnr_db=input_db,
                weight_sqnr_db=weight_db,
                sqnr_db=together(input_db, weight_db),
                only=None,
                without=None,
            )
        )
    return records


def _tensor(value: fx.Node, by_node: dict[fx.Node, str], by_quantizer: dict[str, str]) -> str | None:
    """The name of the rounded activation that a node gives."""
    if value in by_node:
        return by_node[value]
    if is_fake_quant(value) and not is_parameter(value.args[0]):
        return by_quantizer.get(quantizer_of(value))
    return None


def _weight(value: fx.Node) -> str | None:
    """The name of the rounded weight that a node gives."""
    if is_fake_quant(value) and is_parameter(value.args[0]):
        return str(quantizer_of(value))
    if is_dequantize(value) and not is_quantize(value.args[0]):
        return str(stored_weight(value).target)
    return None


def together(*decibels: float | None) -> float | None:
    """Signal to noise of a product whose factors have these: their noises, relative to their signals, add up.

    >>> round(together(40.0, 40.0), 1)
    37.0
    """
    given = [value for value in decibels if value is not None]
    return -10 * math.log10(sum(10 ** (-value / 10) for value in given)) if given else None
