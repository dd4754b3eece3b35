"""An artefact on OpenVINO's CPU plugin."""

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from quaver.errors import StorageError
from quaver.runtime.runner import Array, Input, Runner

# Float layers stay float32: on processors with AMX the plugin would otherwise run them in bfloat16, and an int8 program's
# few float layers would no longer be what was trained. Nor may it round the float inputs of layers with int8 weights.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


class OpenVINORunner(Runner):
    """A compiled model, one stream, one request."""

    engine = "openvino"

    def __init__(self, model: Any, threads: int = 1, **settings: str) -> None:
        options = (
            {"INFERENCE_NUM_THREADS": str(threads), "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"} | EXACT | settings
        )
        self.compiled = ov.Core().compile_model(model, "CPU", options)
        self.request = self.compiled.create_infer_request()
        self.inputs = [
            Input(port.get_any_name(), tuple(_size(size) for size in port.partial_shape), port.element_type.to_dtype())
            for port in self.compiled.inputs
        ]

    def infer(self, batch: list[Array]) -> list[Array]:
        """One request; the results are copies, so that the next one leaves them alone."""
        results = self.request.infer(batch)
        return [np.array(results[port]) for port in self.compiled.outputs]


def _size(dimension: Any) -> int | None:
    return dimension.get_length() if dimension.is_static else None


def read(path: Path) -> Any:
    """The model in a file, or an error that says what is wrong with it."""
    try:
        return ov.Core().read_model(path)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise StorageError(f"{path}: OpenVINO cannot read it: {reason}. Export the program again.") from error


def load(path: Path, threads: int) -> OpenVINORunner:
    """A runner for ``model.xml``."""
    model = read(path)
    try:
        return OpenVINORunner(model, threads)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise StorageError(f"{path}: OpenVINO cannot run it: {reason}. Export the program again.") from error
