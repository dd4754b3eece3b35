"""An artefact on OpenVINO's CPU plugin."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from quaver.errors import EngineError, InputError, StorageError
from quaver.runtime.runner import Array, Input, Runner

# Float layers stay float32: on processors with AMX the plugin would otherwise run them in bfloat16, and an int8 program's
# few float layers would no longer be what was trained. Nor may it round the float inputs of layers with int8 weights.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
# For fixed shapes the plugin would fuse elementwise ops, quantizers among them, into kernels that round otherwise.
EXACT_FOR_FIXED_SHAPES = {"SNIPPETS_MODE": "DISABLE"}

Shapes = tuple[tuple[int, ...], ...]


def _package() -> Any:
    try:
        import openvino
    except ImportError as error:
        raise EngineError(
            "openvino is not installed: it writes and runs .xml files. Install it with pip install openvino."
        ) from error
    return openvino


ov = _package()


@cache
def core() -> Any:
    """OpenVINO, one for the whole process and as long as it lives.

    Each `Core` puts its own memory under signal handlers and, when it goes, what it found there before: of two that do not
    go in the order they came, the last leaves memory that is already given back, and the next signal (a Ctrl-C, a child
    that ends) is a segmentation fault (seen in 2026.4).
    """
    return ov.Core()


class OpenVINORunner(Runner):
    """A model on one stream with one request.

    It is compiled when the first batch comes, for just its shapes: at batch 1 that saves up to a quarter of the time.
    Batches of other shapes share a second one that takes any. Both give the same bits.
    """

    engine = "openvino"

    def __init__(self, model: Any, threads: int = 1, **settings: str) -> None:
        self.model = model
        rounds = any(op.get_type_name() == "FakeQuantize" for op in model.get_ops())
        self.options = (
            {"INFERENCE_NUM_THREADS": str(threads), "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"}
            | EXACT
            | (EXACT_FOR_FIXED_SHAPES if rounds else {})
            | settings
        )
        self.inputs = [
            Input(port.get_any_name(), tuple(_size(size) for size in port.partial_shape), port.element_type.to_dtype())
            for port in model.inputs
        ]
        self._requests: dict[Shapes | None, Any] = {}
        self._carried: set[Shapes] = set()
        if not any(None in given.shape for given in self.inputs):
            self._requests[None] = self._compiled(model)

    @property
    def request(self) -> Any:
        """The request that ran first."""
        return next(iter(self._requests.values()))

    def infer(self, batch: list[Array]) -> list[Array]:
        """One request. It reads the batch where it lies; the results are copies, so that the next one leaves them alone."""
        request = self._request_for(tuple(given.shape for given in batch))
        results = request.infer(batch, share_inputs=True)
        return [np.array(results[port]) for port in request.model_outputs]

    def _request_for(self, shapes: Shapes) -> Any:
        if shapes not in self._carried:
            fixed = _fixed(self.model, shapes)
            if not self._requests and all(math.prod(shape) for shape in shapes):
                self._requests[shapes] = self._compiled(fixed)
            self._carried.add(shapes)
        key = shapes if shapes in self._requests else None
        if key not in self._requests:
            self._requests[key] = self._compiled(self.model)
        return self._requests[key]

    def _compiled(self, model: Any) -> Any:
        try:
            return core().compile_model(model, "CPU", self.options).create_infer_request()
        except RuntimeError as error:
            raise EngineError(f"OpenVINO cannot run the model: {_reason(error)}. Export the program again.") from error


def _fixed(model: Any, shapes: Shapes) -> Any:
    """A copy of the model for these shapes alone.

    A Reshape inside may fix the batch. The engine does not look, and would read past the images (seen in 2026.4); working
    out the shapes does look. ``ov.Model.reshape`` would mend that Reshape instead.
    """
    fixed = model.clone()
    try:
        for parameter, shape in zip(fixed.get_parameters(), shapes, strict=True):
            parameter.set_partial_shape(ov.PartialShape(list(shape)))
        fixed.validate_nodes_and_infer_types()
    except RuntimeError as error:
        given = ", ".join(str(shape) for shape in shapes)
        raise InputError(f"the model cannot carry a batch of shape {given}: {_reason(error)}.") from error
    return fixed


def _reason(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[-1].rstrip(".")


def _size(dimension: Any) -> int | None:
    return dimension.get_length() if dimension.is_static else None


def read(path: Path) -> Any:
    """The model in a file, or an error that says what is wrong with it."""
    try:
        return core().read_model(path)
    except RuntimeError as error:
        raise StorageError(f"{path}: OpenVINO cannot read it: {_reason(error)}. Export the program again.") from error


def load(path: Path, threads: int) -> OpenVINORunner:
    """A runner for ``model.xml``."""
    return OpenVINORunner(read(path), threads)
