"""The ranges of what a live model's layers give: engines that round every output need them, and a live layer does not know
what stands behind it. Batches that run through the program show them.
"""

from collections.abc import Iterable
from typing import Any

import torch

from quaver.eager.input_spec import InputSpec
from quaver.errors import InputError
from quaver.graph.nodes import ops_by_name
from quaver.graph.patterns import fused_output
from quaver.program import EVAL, Program
from quaver.program.views import Executable
from quaver.quantizers import Observer


def observe_output_ranges(program: Program, batches: Iterable[Any], specs: list[InputSpec]) -> None:
    """Let the observers of a prepared program see what its ops give for these batches: tensors, or tuples of them.

    Of a pair of images and labels, as loaders give them, as many are taken as the model has inputs.
    """
    lowering = program.engine.lowering()
    graph = lowering.run(program.graphs[EVAL])
    became = lowering.became()
    outputs = {
        name: program.quantizer(role["output"]) for name, role in program.placements.roles.items() if "output" in role
    }
    observers = {name: observer for name, observer in outputs.items() if isinstance(observer, Observer)}
    ops = ops_by_name(program.graphs[EVAL])
    last = next(node for node in graph.nodes if node.op == "output")
    last.args = ([became[fused_output(ops[name])] for name in observers],)
    run = Executable(program, graph)
    device = next((tensor.device for tensor in program.parameters()), None)
    with torch.no_grad():
        for batch in batches:
            given = list(batch)[: len(specs)] if isinstance(batch, tuple | list) else [batch]
            if len(given) < len(specs):
                raise InputError(f"convert: a batch has {len(given)} tensors, and the model takes {len(specs)}.")
            values = run(*(torch.as_tensor(value, device=device) for value in given))
            for observer, seen in zip(observers.values(), values, strict=True):
                observer.observe(seen)
