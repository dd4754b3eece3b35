"""A program as a LiteRT file (``.tflite``): integers where XNNPACK takes them, float for the rest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, fx

from quaver.engines.engine import WriteOptions
from quaver.engines.litert import attention, clamps, layers, moves, pointwise, pools, selections
from quaver.engines.litert.decomposition import decompose, inline_autocast
from quaver.engines.litert.flatbuffer import File
from quaver.engines.litert.model_card import NAME as CARD
from quaver.engines.litert.model_card import model_card, with_labels
from quaver.engines.litert.translator import Order, Translator, Value, as_given, channels_last
from quaver.engines.litert.writes import without_writes
from quaver.errors import StageError
from quaver.program import EVAL, Program, Stage
from quaver.program.quantized_tensors import quantized_tensors
from quaver.runtime.seal import SEALED, sealed
from quaver.xnnpack.byte_input import described, take_bytes
from quaver.xnnpack.one_image import batch_axes, refuse_joint_outputs
from quaver.xnnpack.partitioning import for_xnnpack, shapes

IMAGES = 4  # dimensions
FACTS = "quaver"  # the file's note that says what Quaver knows of it, as JSON
KINDS = (layers, clamps, pointwise, attention, pools, moves, selections)
TRANSLATIONS = {packet: translation for kind in KINDS for packet, translation in kind.TRANSLATIONS.items()}


def write(program: Program, file: Path, origin: dict[str, Any], options: WriteOptions) -> None:
    """Write a program as ``model.tflite``."""
    labels = origin.get("preprocessing", {}).get("labels", ())
    file.write_bytes(sealed(with_labels(serialized(program, origin, options), labels, behind=SEALED)))


def serialized(program: Program, origin: dict[str, Any], options: WriteOptions | None = None) -> bytes:
    """The content of a file that computes what a mobile program, or a float one, computes.

    It takes one image at a time where the batch is free, and `quaver.runtime` runs larger batches image by image. Its note
    ``quaver`` says where it comes from, and in which order its tensors lie; `model_card` is what others show of it. Images
    come with their channels last where the ``input_layout`` is nhwc, and as a camera's bytes as ``image`` says.
    """
    options = options or WriteOptions()
    if program.stage not in (Stage.MOBILE, Stage.FLOAT):
        raise StageError(f"LiteRT: takes a mobile program, or a float one, and this one is {program.stage.value}.")
    refuse_joint_outputs(program, "LiteRT")
    module = program.graph_module()
    names = titles(program, module)
    axes = {names[node]: axis for node, axis in batch_axes(program, module, names).items()}
    inputs = take_bytes(module, program, options.image, "LiteRT")
    inline_autocast(module)
    shapes(module, inputs)
    without_writes(module)
    for_xnnpack(module, inputs)
    shapes(module, inputs)
    decompose(module, {*TRANSLATIONS, "getitem"})
    translator = Translator(File(), module, TRANSLATIONS)
    translator.titles = names
    last = options.input_layout == "nhwc" and options.image is None
    taken = given(translator, program, inputs, channels_last if last else as_given)
    translator.run()
    outputs = results(translator)
    facts = {
        "inputs": described(program, options.image),
        "orders": [value.order for value in taken.values()],
        "origin": origin,
        "tensors": {name: [value.stored.index, value.order, axes[name]] for name, value in translator.named.items()},
    }
    translator.file.note(FACTS, json.dumps(facts, sort_keys=True).encode())
    takes, gives = ({name: value.stored.shape for name, value in values.items()} for values in (taken, outputs))
    translator.file.note(CARD, model_card(takes, gives, origin, options))
    return translator.file.finished(
        {name: value.stored for name, value in taken.items()}, {name: value.stored for name, value in outputs.items()}
    )


def titles(program: Program, module: fx.GraphModule) -> dict[fx.Node, str]:
    """The names of the tensors that a copy of a program's graph rounds, by its nodes."""
    copies = dict(zip(program.graphs[EVAL].nodes, module.graph.nodes, strict=True))
    return {copies[tensor.quantize]: tensor.name for tensor in quantized_tensors(program)}


def given(t: Translator, program: Program, inputs: tuple[Tensor, ...], order_of: Callable[[int], Order]) -> dict[str, Value]:
    """The file's inputs, by the program's names; those that are images in this order."""
    nodes = [node for node in t.module.graph.nodes if node.op == "placeholder"]
    for node, leaf, tensor in zip(nodes, program.signature.tensors, inputs, strict=True):
        shape = tuple(tensor.shape)
        order = order_of(IMAGES) if len(shape) == IMAGES else as_given(len(shape))
        dtype = str(tensor.dtype).removeprefix("torch.")
        t.values[node] = Value(t.file.tensor(leaf.name, tuple(shape[dim] for dim in order), dtype), order)
    return {leaf.name: t.values[node] for node, leaf in zip(nodes, program.signature.tensors, strict=True)}


def results(t: Translator) -> dict[str, Value]:
    """The program's outputs, by name, in float and in PyTorch's order."""
    outputs: Any = t.module.graph.output_node().args[0]
    values = [t.operand(node) for node in outputs]
    ordered = [t.ordered(value, as_given(value.rank)) for value in values]
    several = len(ordered) > 1
    return {f"output_{place}" if several else "output": value for place, value in enumerate(ordered)}
