"""The form of a program that XNNPACK executes: signed int8 everywhere, and every op's result rounded."""

import torch
from torch import fx

from quaver.errors import StageError
from quaver.graph.copying import copy_graph
from quaver.graph.nodes import (
    activation_inputs,
    facts,
    is_dequantize,
    is_quantize,
    is_written,
    op_of,
    ops_by_name,
    results,
    tensor_notes,
)
from quaver.graph.patterns import fused_output, never_negative
from quaver.grid import Grid
from quaver.passes.quantized_ops import pair
from quaver.program import EVAL, Program, Stage
from quaver.quantizers.arithmetic import scale_of
from quaver.xnnpack.step_limits import fit_steps

Parameters = tuple[float, int, int, int, torch.dtype]


def mobile_form(program: Program) -> Program:
    """An int8 program with signed pairs everywhere, and none missing."""
    graph = copy_graph(program.graphs[EVAL])
    for node in graph.nodes:
        if is_quantize(node) or is_dequantize(node):
            make_signed(node)
    ops = ops_by_name(graph)
    for record in program.records:
        computes_on_integers = any(role.startswith("input") for role in record.thresholds)
        if record.quantized and computes_on_integers and record.name in ops:
            round_output(graph, ops[record.name], record.thresholds.get("output", []))
    fit_steps(program, graph)
    return program.copy(graphs={EVAL: graph}, stage=Stage.MOBILE)


def make_signed(node: fx.Node) -> None:
    """Shift an unsigned grid by 128."""
    if node.args[-1] is torch.uint8:
        x, scale, zero, low, high, _ = node.args
        node.args = (x, scale, zero - 128, low - 128, high - 128, torch.int8)  # type: ignore[operator]
        if is_quantize(node):
            node.meta = tensor_notes(node, dtype=torch.int8)


def round_output(graph: fx.Graph, node: fx.Node, threshold: list[float]) -> None:
    """Put a pair behind an op whose output somebody reads unrounded."""
    for last in results(node) if node.users and results(node) != [node] else [fused_output(node)]:
        unrounded = [reader for reader in last.users if not is_quantize(reader)]
        if not unrounded or is_written(last):
            continue
        rounded = next((next(iter(reader.users)) for reader in last.users if is_quantize(reader)), None)
        if rounded is None:
            with graph.inserting_before(last.next):
                rounded = pair(graph, last, inherited(node) or observed(node, last, threshold))
        for reader in unrounded:
            reader.replace_input_with(last, rounded)


def inherited(node: fx.Node) -> Parameters | None:
    """The grid of an op that only moves values: its input's."""
    inputs = activation_inputs(node)
    if facts(node).kind == "move" and inputs and is_dequantize(inputs[0]):
        return inputs[0].args[1:]  # type: ignore[return-value]
    return None


def observed(node: fx.Node, last: fx.Node, threshold: list[float]) -> Parameters:
    """The grid for the range that was observed in training."""
    if not threshold:
        raise StageError(
            f"{op_of(node).name!r}: the range of its output was not observed, and the mobile runtime rounds it. "
            "Run training batches through the prepared program before freezing it; for a live model, give "
            "QAT.convert(net, input_spec, batches) some."
        )
    signed = not never_negative([last])
    grid = Grid(8, signed, narrow=False)
    scale = float(scale_of(torch.tensor(threshold[0]), grid))
    return (scale, 0, grid.low, grid.high, torch.int8) if signed else (scale, -128, -128, 127, torch.int8)
