"""A program as a LiteRT file (``.tflite``): integers where XNNPACK takes them, float for the rest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import fx

from quaver.engines.engine import WriteOptions
from quaver.engines.litert import clamps, layers, moves, pointwise, pools
from quaver.engines.litert.flatbuffer import File
from quaver.engines.litert.model_card import NAME as CARD
from quaver.engines.litert.model_card import model_card, with_labels
from quaver.engines.litert.translator import Order, Translator, Value, as_given, channels_last
from quaver.errors import StageError
from quaver.program import EVAL, Program, Stage
from quaver.program.quantized_tensors import quantized_tensors
from quaver.runtime.seal import SEALED, sealed
from quaver.xnnpack.one_image import example, refuse_joint_outputs
from quaver.xnnpack.partitioning import for_xnnpack, shapes

IMAGES = 4  # dimensions
FACTS = "quaver"  # the file's note that says what Quaver knows of it, as JSON
KINDS = (layers, clamps, pointwise, pools, moves)
TRANSLATIONS = {packet: translation for kind in KINDS for packet, translation in kind.TRANSLATIONS.items()}


def write(program: Program, file: Path, origin: dict[str, Any], options: WriteOptions) -> None:
    """Write a program as ``model.tflite``."""
    content = serialized(program, origin, options)
    file.write_bytes(sealed(with_labels(content, options.labels, behind=SEALED)))


def serialized(program: Program, origin: dict[str, Any], options: WriteOptions | None = None) -> bytes:
    """The content of a file that computes what a mobile program, or a float one, computes.

    It takes one image at a time where the batch is free, and `quaver.runtime` runs larger batches image by image. Its note
    ``quaver`` says where it comes from, and in which order its tensors lie; `model_card` is what others show of it. Images
    come with their channels last where the ``input_layout`` is nhwc.
    """
    options = options or WriteOptions()
    if program.stage not in (Stage.MOBILE, Stage.FLOAT):
        raise StageError(f"LiteRT: takes a mobile program, or a float one, and this one is {program.stage.value}.")
    refuse_joint_outputs(program, "LiteRT")
    module, inputs = program.graph_module(), example(program, 1)
    names = titles(program, module)
    for_xnnpack(module, inputs)
    shapes(module, inputs)
    translator = Translator(File(), module, TRANSLATIONS)
    translator.titles = names
    taken = given(translator, program, channels_last if options.input_layout == "nhwc" else as_given)
    translator.run()
    outputs = results(translator)
    facts = {
        "inputs": [[leaf.name, leaf.shape, str(leaf.dtype).removeprefix("torch.")] for leaf in program.signature.tensors],
        "orders": [value.order for value in taken.values()],
        "origin": origin,
        "tensors": {name: [value.stored.index, value.order] for name, value in translator.named.items()},
    }
    translator.file.note(FACTS, json.dumps(facts, sort_keys=True).encode())
    card = model_card({name: value.stored.shape for name, value in taken.items()}, outputs, origin, options)
    translator.file.note(CARD, card)
    return translator.file.finished(
        {name: value.stored for name, value in taken.items()}, {name: value.stored for name, value in outputs.items()}
    )


def titles(program: Program, module: fx.GraphModule) -> dict[fx.Node, str]:
    """The names of the tensors that a copy of a program's graph rounds, by its nodes."""
    copies = dict(zip(program.graphs[EVAL].nodes, module.graph.nodes, strict=True))
    return {copies[tensor.quantize]: tensor.name for tensor in quantized_tensors(program)}


def given(t: Translator, program: Program, order_of: Callable[[int], Order]) -> dict[str, Value]:
    """The program's inputs, by name; those that are images in this order."""
    nodes = [node for node in t.module.graph.nodes if node.op == "placeholder"]
    for node, leaf in zip(nodes, program.signature.tensors, strict=True):
        shape = [1 if size is None else size for size in leaf.shape]
        order = order_of(IMAGES) if len(shape) == IMAGES else as_given(len(shape))
        dtype = str(leaf.dtype).removeprefix("torch.")
        t.values[node] = Value(t.file.tensor(leaf.name, tuple(shape[dim] for dim in order), dtype), order)
    return {leaf.name: t.values[node] for node, leaf in zip(nodes, program.signature.tensors, strict=True)}


def results(t: Translator) -> dict[str, Value]:
    """The program's outputs, by name, in float and in PyTorch's order."""
    outputs: Any = t.module.graph.output_node().args[0]
    values = [t.operand(node) for node in outputs]
    ordered = [t.ordered(value, as_given(value.rank)) for value in values]
    several = len(ordered) > 1
    return {f"output_{place}" if several else "output": value for place, value in enumerate(ordered)}
