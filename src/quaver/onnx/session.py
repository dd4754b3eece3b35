"""An ONNX file on ONNX Runtime's CPU provider."""

from pathlib import Path
from typing import Any

import numpy as np

from quaver.errors import EngineError, StorageError
from quaver.files import name_or_content
from quaver.runtime.runner import Array, Input, Runner

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def engine() -> Any:
    """The onnxruntime package."""
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError(
            "onnxruntime is not installed: it runs .onnx files. Install it with pip install 'quaver[onnxruntime]'."
        ) from error
    return onnxruntime


class ONNXRuntimeRunner(Runner):
    """A session, which any number of threads may run at once."""

    engine = "onnxruntime"

    def __init__(self, model: bytes | str, threads: int = 1, optimize: bool = True) -> None:
        ort = engine()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = [
            Input(
                port.name,
                tuple(size if isinstance(size, int) else None for size in port.shape),
                np.dtype(_DTYPES[port.type]),
            )
            for port in self.session.get_inputs()
        ]

    def infer(self, batch: list[Array]) -> list[Array]:
        """One run."""
        feed = {port.name: array for port, array in zip(self.inputs, batch, strict=True)}
        try:
            return [np.asarray(output) for output in self.session.run(None, feed)]
        except Exception as error:  # onnxruntime's own exceptions share no base class
            raise EngineError(f"ONNX Runtime failed while it ran the model: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def load(path: Path, threads: int, *, optimize: bool = True) -> ONNXRuntimeRunner:
    """A runner for ``model.onnx``; without ``optimize``, node by node as it is written."""
    engine()
    try:
        return ONNXRuntimeRunner(name_or_content(path), threads, optimize)
    except Exception as error:  # onnxruntime's own exceptions share no base class
        raise StorageError(f"{path}: ONNX Runtime cannot run it: {_reason(error)}. Export the program again.") from error
