"""An artefact on OpenVINO's CPU plugin."""

from collections.abc import Callable
from functools import cache, partial, wraps
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from quaver.errors import EngineError, InputError, StorageError
from quaver.runtime.pool import ObjectPool, at_once
from quaver.runtime.runner import Array, Input, Runner

# Float layers stay float32: on processors with AMX the plugin would otherwise run them in bfloat16, and an int8 program's
# few float layers would no longer be what was trained. Nor may it round the float inputs of layers with int8 weights.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
EXACT_IN_FILE = ("DYNAMIC_QUANTIZATION_GROUP_SIZE",)
"""Those of `EXACT` that the plugin also reads from a file; who opens one without Quaver has to set the others (2026.4)."""
# For fixed shapes the plugin would fuse elementwise ops, quantizers among them, into kernels that round otherwise.
EXACT_FOR_FIXED_SHAPES = {"SNIPPETS_MODE": "DISABLE"}
# The plugin would hold the threads of every model to the same first cores: models that run at once would share one core.
ANY_CORE = {"ENABLE_CPU_PINNING": "NO"}

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
# Two threads that each look up a dtype for the first time wait for each other for ever (seen in 2026.4): here is the first.
ov.Tensor(np.zeros(1, np.float32)).get_element_type().to_dtype()


def _one_at_a_time(function: Callable[[], Any]) -> Callable[[], Any]:
    lock = Lock()

    @wraps(function)
    def guarded() -> Any:
        with lock:
            return function()

    return guarded


@_one_at_a_time
@cache
def core() -> Any:
    """OpenVINO, one for the whole process and as long as it lives.

    Each `Core` puts its own memory under signal handlers and, when it goes, what it found there before: of two that do not
    go in the order they came, the last leaves memory that is already given back, and the next signal (a Ctrl-C, a child
    that ends) is a segmentation fault (seen in 2026.4).
    """
    return ov.Core()


class OpenVINORunner(Runner):
    """A model that any number of threads may call. Those that call at once each have a request on a copy of the model.

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
            | ANY_CORE
            | (EXACT_FOR_FIXED_SHAPES if rounds else {})
            | settings
        )
        self.inputs = [
            Input(port.get_any_name(), tuple(_size(size) for size in port.partial_shape), port.element_type.to_dtype())
            for port in model.inputs
        ]
        self._any = ObjectPool(partial(_compiled, model, self.options), at_once(threads))
        self._first: dict[Shapes, ObjectPool[Any]] = {}
        self._carried: set[Shapes] = set()
        self._is_free = any(None in given.shape for given in self.inputs)
        if not self._is_free:
            self._any.give(self._any.take())

    @property
    def request(self) -> Any:
        """The request that ran last for the shapes that came first."""
        return next(pool.idle[-1] for pool in (*self._first.values(), self._any) if pool.idle)

    def infer(self, batch: list[Array]) -> list[Array]:
        """One request. It reads the batch where it lies; the results are copies, so that the next one leaves them alone."""
        requests = self._requests_for(tuple(given.shape for given in batch))
        request = requests.take()
        try:
            # held till the request is done; memory that may not be written to is not shared
            tensors = [ov.Tensor(given, shared_memory=given.flags.writeable) for given in batch]
            for place, tensor in enumerate(tensors):
                request.set_input_tensor(place, tensor)
            request.infer(share_outputs=True)
            return [np.array(request.get_output_tensor(place).data) for place in range(len(request.model_outputs))]
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"OpenVINO failed while it ran the model: {_reason(error)}.") from error
        finally:
            requests.give(request)

    def _requests_for(self, shapes: Shapes) -> ObjectPool[Any]:
        if shapes not in self._carried:
            with self._any.lock:
                self._carry(shapes)
        return self._first.get(shapes, self._any)

    def _carry(self, shapes: Shapes) -> None:
        fixed = _fixed(self.model, shapes)
        if self._is_free and not self._first:
            self._first[shapes] = ObjectPool(partial(_compiled, fixed, self.options), self._any.most)
        self._carried.add(shapes)


def _compiled(model: Any, options: dict[str, str]) -> Any:
    """A request on a copy of the model that is its own: requests on one copy would wait for each other."""
    try:
        return core().compile_model(model, "CPU", options).create_infer_request()
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


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].rstrip(".")


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
