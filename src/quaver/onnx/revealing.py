"""The quantized tensors of an ONNX file as further outputs."""

from pathlib import Path

import onnx

from quaver.engines.inspection import ModelPart, Revealed
from quaver.onnx.session import ONNXRuntimeRunner
from quaver.program.quantized_tensors import rounded_name


def reveal(file: Path, names: list[str], threads: int, *, optimize: bool = True) -> Revealed:
    """The model with these quantized tensors as further outputs."""
    proto = onnx.load(file)
    made = {output for node in proto.graph.node for output in node.output}
    names = [name for name in names if rounded_name(name) in made]
    tensors = [onnx.helper.make_tensor_value_info(rounded_name(name), onnx.TensorProto.FLOAT, None) for name in names]
    own = len(proto.graph.output)
    proto.graph.output.extend(tensors)
    places = {name: own + place for place, name in enumerate(names)}
    return Revealed([ModelPart(own, places, ONNXRuntimeRunner(proto.SerializeToString(), threads, optimize))], set(names))
