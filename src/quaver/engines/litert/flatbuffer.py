"""A ``.tflite`` file, tensor by tensor and op by op: LiteRT's schema, and nothing of Quaver's graphs."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.errors import EngineError

IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3
ALIGNMENT = 16  # of what buffers hold, as the schema asks for
NO_TENSOR = -1

# ops by their options; those that are not here have none, or need none
OPTIONS = {
    "ADD": "Add",
    "ARG_MAX": "ArgMax",
    "ARG_MIN": "ArgMin",
    "AVERAGE_POOL_2D": "Pool2D",
    "BATCH_MATMUL": "BatchMatMul",
    "CONCATENATION": "Concatenation",
    "CONV_2D": "Conv2D",
    "CUMSUM": "Cumsum",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "DEPTH_TO_SPACE": "DepthToSpace",
    "DIV": "Div",
    "FULLY_CONNECTED": "FullyConnected",
    "GATHER": "Gather",
    "GELU": "Gelu",
    "LEAKY_RELU": "LeakyRelu",
    "MAX_POOL_2D": "Pool2D",
    "MEAN": "Reducer",
    "MIRROR_PAD": "MirrorPad",
    "MUL": "Mul",
    "REDUCE_MAX": "Reducer",
    "REDUCE_MIN": "Reducer",
    "RESHAPE": "Reshape",
    "RESIZE_BILINEAR": "ResizeBilinear",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighbor",
    "SOFTMAX": "Softmax",
    "STRIDED_SLICE": "StridedSlice",
    "SUB": "Sub",
    "SUM": "Reducer",
    "TRANSPOSE_CONV": "TransposeConv",
}
# the versions of ops in which they take int8, and others only where they differ; the rest is at its first
INT8_VERSIONS = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"), 3),
    "FULLY_CONNECTED": 12,  # with a step per channel
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), 3),  # with half pixels
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAX_POOL_2D", "MEAN", "CONCATENATION", "TRANSPOSE", "STRIDED_SLICE"), 2),
    **dict.fromkeys(("DEQUANTIZE", "PAD", "PADV2", "DEPTH_TO_SPACE", "GATHER", "MAXIMUM", "MINIMUM"), 2),
}
FLOAT_VERSIONS = {"TRANSPOSE_CONV": 3, "RESIZE_BILINEAR": 3, "RESIZE_NEAREST_NEIGHBOR": 3, "BROADCAST_TO": 2}


def schema() -> Any:
    """The schema's own bindings, which come with the engine."""
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError as error:
        raise EngineError(
            "ai-edge-litert is not installed: it writes .tflite files. Install it with pip install 'quaver[litert]'."
        ) from error
    return schema_py_generated


class QParams(NamedTuple):
    """What the integers of a tensor stand for: a step, or one for each channel of an axis, and a zero point."""

    scale: NDArray[np.float32]
    zero_point: int
    axis: int = 0

    @classmethod
    def of(cls, scale: float, zero_point: int) -> "QParams":
        """One step for all."""
        return cls(np.array([scale], np.float32), zero_point)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, QParams)
            and np.array_equal(self.scale, other.scale)
            and (self.zero_point, self.axis) == (other.zero_point, other.axis)
        )

    def __hash__(self) -> int:
        return hash((self.scale.tobytes(), self.zero_point, self.axis))


@dataclass(frozen=True)
class FileTensor:
    """A tensor of the file: its place there, its shape, dtype and grid."""

    index: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grid: QParams | None = None

    @property
    def is_int8(self) -> bool:
        """Whether its numbers are integers of a grid."""
        return self.grid is not None


class File:
    """A file in the making."""

    def __init__(self) -> None:
        self.schema = schema()
        self.model = self.schema.ModelT()
        self.model.version, self.model.description = SCHEMA_VERSION, "Quaver"
        self.model.buffers = [self.schema.BufferT()]  # the first is the empty one
        self.model.operatorCodes, self.model.metadata, self.model.signatureDefs = [], [], []
        self.graph = self.schema.SubGraphT()
        self.graph.name, self.graph.tensors, self.graph.operators = "main", [], []
        self.model.subgraphs = [self.graph]
        self.codes: dict[tuple[str, int], int] = {}
        self.constants: dict[Any, FileTensor] = {}
        self.names: set[str] = set()

    def tensor(self, name: str, shape: tuple[int, ...], dtype: Any, grid: QParams | None = None) -> FileTensor:
        """A tensor that an op gives, or the caller."""
        stored = FileTensor(len(self.graph.tensors), tuple(map(int, shape)), np.dtype(dtype), grid)
        tensor = self.schema.TensorT()
        tensor.name = self.unique(name).encode()
        tensor.shape, tensor.buffer = np.array(stored.shape, np.int32), 0
        tensor.type = getattr(self.schema.TensorType, str(stored.dtype).upper())
        tensor.hasRank = True
        if grid is not None:
            tensor.quantization = self.schema.QuantizationParametersT()
            tensor.quantization.scale = grid.scale
            tensor.quantization.zeroPoint = np.full(len(grid.scale), grid.zero_point, np.int64)
            tensor.quantization.quantizedDimension = grid.axis
        self.graph.tensors.append(tensor)
        return stored

    def unique(self, name: str) -> str:
        """``name``, or with a number behind it if it is taken."""
        plain, number = name, 0
        while name in self.names:
            number += 1
            name = f"{plain}_{number}"
        self.names.add(name)
        return name

    def constant(self, name: str, values: NDArray[Any], grid: QParams | None = None) -> FileTensor:
        """A tensor that the file holds; equal ones are held once."""
        key = (values.dtype.str, values.shape, values.tobytes(), grid)
        if key not in self.constants:
            stored = self.tensor(name, values.shape, values.dtype, grid)
            self.graph.tensors[stored.index].buffer = self.buffer(values.tobytes())
            self.constants[key] = stored
        return self.constants[key]

    def buffer(self, content: bytes) -> int:
        """The place of these bytes among the file's buffers."""
        buffer = _aligned(self.schema)
        buffer.data = np.frombuffer(content, np.uint8)
        self.model.buffers.append(buffer)
        return len(self.model.buffers) - 1

    def op(self, name: str, inputs: list[FileTensor | None], output: FileTensor, **options: Any) -> FileTensor:
        """Add an op; None is an operand that is left out."""
        operator = self.schema.OperatorT()
        operator.opcodeIndex = self.code(name, any(value is not None and value.is_int8 for value in inputs))
        operator.inputs = [NO_TENSOR if value is None else value.index for value in inputs]
        operator.outputs = [output.index]
        if name in OPTIONS:
            kind = f"{OPTIONS[name]}Options"
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, kind)
            operator.builtinOptions = getattr(self.schema, f"{kind}T")()
            fields = vars(operator.builtinOptions)
            for option, value in options.items():
                assert option in fields, option
                fields[option] = value
        self.graph.operators.append(operator)
        return output

    def code(self, name: str, on_int8: bool) -> int:
        """The place of an op, at the version that takes its operands, among the file's codes."""
        version = (INT8_VERSIONS if on_int8 else FLOAT_VERSIONS).get(name, 1)
        if (name, version) not in self.codes:
            code = self.schema.OperatorCodeT()
            code.builtinCode = getattr(self.schema.BuiltinOperator, name)
            code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
            self.codes[name, version] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        return self.codes[name, version]

    def note(self, name: str, content: bytes) -> None:
        """Let the file carry these bytes under a name."""
        entry = self.schema.MetadataT()
        entry.name, entry.buffer = name, self.buffer(content)
        self.model.metadata.append(entry)

    def finished(self, inputs: dict[str, FileTensor], outputs: dict[str, FileTensor]) -> bytes:
        """The content of the file."""
        self.graph.inputs = [value.index for value in inputs.values()]
        self.graph.outputs = [value.index for value in outputs.values()]
        self.model.signatureDefs = [self.signature(inputs, outputs)]
        return packed(self.model)

    def signature(self, inputs: dict[str, FileTensor], outputs: dict[str, FileTensor]) -> Any:
        """What Android calls the inputs and outputs by."""
        signature = self.schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = "serving_default", 0
        signature.inputs, signature.outputs = self.named(inputs), self.named(outputs)
        return signature

    def named(self, tensors: dict[str, FileTensor]) -> list[Any]:
        """Tensors by name, as the schema has them."""
        entries = []
        for name, stored in tensors.items():
            entry = self.schema.TensorMapT()
            entry.name, entry.tensorIndex = name, stored.index
            entries.append(entry)
        return entries


def packed(model: Any) -> bytes:
    """A model as bytes."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def unpacked(content: bytes) -> Any:
    """A file's content as a model, to read and to change."""
    return schema().ModelT.InitFromPackedBuf(content, 0)


def _aligned(schema: Any) -> Any:
    """A buffer whose content lies where vector instructions read it; the bindings would put it anywhere."""

    class Aligned(schema.BufferT):  # type: ignore[misc,name-defined]
        def Pack(self, builder: Any) -> Any:  # noqa: N802
            builder.StartVector(1, len(self.data), ALIGNMENT)
            builder.head -= len(self.data)
            builder.Bytes[builder.head : builder.head + len(self.data)] = self.data.tobytes()
            content = builder.EndVector()
            schema.BufferStart(builder)
            schema.BufferAddData(builder, content)
            return schema.BufferEnd(builder)

    return Aligned()
