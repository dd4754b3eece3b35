import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from quaver.runtime.runner import Input, Runner


class ToyRunner(Runner):
    engine = "onnx"

    def __init__(self, file):
        model = onnx.load_from_string(file.read_bytes())
        self.evaluator = ReferenceEvaluator(model)
        self.inputs = [
            Input(
                value.name,
                tuple(dim.dim_value or None for dim in value.type.tensor_type.shape.dim),
                onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
            )
            for value in model.graph.input
        ]

    def infer(self, batch):
        feed = {port.name: array for port, array in zip(self.inputs, batch, strict=True)}
        return [np.asarray(output) for output in self.evaluator.run(None, feed)]


def load(file, threads):
    return ToyRunner(file)
