"""A graph as the ops of a ``.tflite`` file: which tensors are integers, and in which order their dimensions lie.

Most ops on images want channels last. So a tensor keeps the order that it has, next to the one that PyTorch knows it by, and
is transposed only where an op needs another. A tensor on a grid stays in integers until somebody reads it as float: what
moves values moves integers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from quaver.engines.litert.flatbuffer import File, FileTensor, QParams
from quaver.errors import EngineError
from quaver.graph.nodes import argument, clamp_bounds, facts, is_op, op_of, packet
from quaver.graph.patterns import is_rounded
from quaver.program.views import read

Order = tuple[int, ...]


def as_given(rank: int) -> Order:
    """The order of dimensions that PyTorch has."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """The order of dimensions that LiteRT's ops on images have."""
    return (0, *range(2, rank), 1)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph as it lies in the file: ``order`` are PyTorch's dimensions as they follow there."""

    stored: FileTensor
    order: Order
    array: NDArray[Any] | None = None  # of a constant

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in PyTorch."""
        return tuple(self.stored.shape[self.order.index(dim)] for dim in range(self.rank))

    @property
    def grid(self) -> QParams | None:
        """What its integers stand for; None for one in float."""
        return self.stored.grid

    def place(self, dim: int) -> int:
        """Where a dimension lies."""
        return self.order.index(dim % self.rank)


Translation = Callable[["Translator", fx.Node], "Value | list[Value]"]


class Translator:
    """Writes a graph's nodes into a file, one after the other.

    ``translations`` are by the ops' packets. ``titles`` are the names of quantize nodes' tensors.
    """

    def __init__(self, file: File, module: fx.GraphModule, translations: dict[str, Translation]) -> None:
        self.file = file
        self.module = module
        self.translations = translations
        self.titles: dict[fx.Node, str] = {}
        self.values: dict[fx.Node, Any] = {}
        self.constants: dict[fx.Node, Any] = {}
        self.made: dict[Any, Value] = {}
        self.named: dict[str, Value] = {}

    def run(self) -> None:
        """Translate every node but the inputs and the output, whose values are there or are taken."""
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                self.constants[node] = read(self.module, str(node.target)).detach()
            elif node.op == "call_function" and node not in self.values and not self.is_folded(node):
                self.values[node] = self.translated(node)

    def is_folded(self, node: fx.Node) -> bool:
        """Whether a node was computed here and now: it depends on no input, or is arithmetic on shapes."""
        if facts(node).kind == "shape" or not isinstance(node.meta.get("val"), (Tensor, list, tuple)):
            self.constants[node] = node.meta.get("val")
            return True
        if packet(node) == "full_like":  # of a tensor that depends on inputs; its shape does not
            like = node.meta["val"]
            self.constants[node] = torch.full(like.shape, argument(node, "fill_value"), dtype=like.dtype)
            return True
        if any(source not in self.constants for source in node.all_input_nodes) or facts(node).kind == "dequantize":
            return False
        with torch.no_grad():
            args, kwargs = fx.map_arg((node.args, node.kwargs), self.constants.__getitem__)
            self.constants[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return True

    def translated(self, node: fx.Node) -> Any:
        """What a node gives, once the ops for it are in the file."""
        kind = facts(node).kind
        if kind == "quantize":
            return self.quantized(node)
        if kind == "dequantize":
            return self.dequantized(node)
        name = packet(node)
        if name == "getitem":
            return self.values[node.args[0]][node.args[1]]  # type: ignore[index]
        if name not in self.translations:
            raise EngineError(
                f"LiteRT: {self.title(node)!r}: there is no form of {name!r} in a .tflite file. Leave out the op, or write "
                "it in others."
            )
        return self.translations[name](self, node)

    def quantized(self, node: fx.Node) -> Value:
        """The integers of a tensor; those that lie on the grid already are taken as they are."""
        source, scale, zero_point = self.values[node.args[0]], float(node.args[1]), int(node.args[2])  # type: ignore
        grid = QParams.of(scale, zero_point)
        value: Value = source
        if source.grid != grid:
            value = self.emit("QUANTIZE", [self.as_float(source)], source, self.title(node), grid)
        if node in self.titles:
            self.named[self.titles[node]] = value
        return value

    def dequantized(self, node: fx.Node) -> Value | None:
        """Integers to read on: a tensor's, or those of a constant that is rounded. None of a weight: its layer reads it."""
        source: Any = node.args[0]
        if facts(source).kind == "quantize" and source in self.constants:
            return self.constant(self.constants[source].numpy(), QParams.of(float(node.args[1]), int(node.args[2])))  # type: ignore
        return self.values.get(source)

    # operands

    def operand(self, argument: Any, grid: QParams | None = None) -> Value:
        """What an op reads: in float, or, for an op that has a ``grid`` for its result, in integers."""
        if isinstance(argument, fx.Node) and argument in self.values:
            value: Value = self.values[argument]
            return value if grid is not None else self.as_float(value)
        array = self.array(argument)
        return self.constant(array.astype(np.float32) if array.dtype.kind == "f" else array)

    def array(self, argument: Any) -> NDArray[Any]:
        """A constant operand."""
        value = self.constants.get(argument, argument) if isinstance(argument, fx.Node) else argument
        if isinstance(value, fx.Node):
            raise EngineError(f"LiteRT: {self.title(value)!r}: a .tflite file has to have it as a constant.")
        return value.numpy() if isinstance(value, Tensor) else np.asarray(value, np.float32)

    def constant(self, array: NDArray[Any], grid: QParams | None = None, name: str = "constant") -> Value:
        """A tensor that the file holds."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        return Value(self.file.constant(name, array, grid), as_given(array.ndim), array)

    def as_float(self, value: Value) -> Value:
        """What integers stand for."""
        if value.grid is None:
            return value
        key = ("float", value.stored.index, value.order)
        if key not in self.made:
            self.made[key] = self.emit("DEQUANTIZE", [value], value, f"{self.name_of(value)}.rounded")
        return self.made[key]

    def name_of(self, value: Value) -> str:
        """What a tensor is called in the file."""
        return str(self.file.graph.tensors[value.stored.index].name.decode())

    def ordered(self, value: Value, order: Order) -> Value:
        """A tensor with its dimensions in this order."""
        if value.order == order:
            return value
        if value.array is not None:
            moved = self.constant(value.array.transpose([value.order.index(dim) for dim in order]), value.grid)
            return Value(moved.stored, order, moved.array)
        key = (order, value.stored.index, value.order)
        if key not in self.made:
            shape = tuple(value.shape[dim] for dim in order)
            if lies_alike(value, order):
                self.made[key] = self.reshaped(value, shape, order)
            else:
                places = self.integers([value.order.index(dim) for dim in order])
                self.made[key] = self.emit(
                    "TRANSPOSE",
                    [value, places],
                    Value(FileTensor(0, shape, value.stored.dtype), order),
                    f"{self.name_of(value)}.transposed",
                    value.grid,
                )
        return self.made[key]

    def reshaped(self, value: Value, shape: tuple[int, ...], order: Order) -> Value:
        """The numbers as they lie, in another shape (as it lies), and what is PyTorch's order of it."""
        like = Value(FileTensor(0, shape, value.stored.dtype), order)
        if shape == value.stored.shape:
            return Value(value.stored, order)
        name, sizes = f"{self.name_of(value)}.reshaped", list(shape)
        return self.emit("RESHAPE", [value, self.integers(sizes)], like, name, value.grid, newShape=sizes)

    def integers(self, numbers: Sequence[Any]) -> Value:
        """A constant list of numbers, or a list of such lists."""
        return self.constant(np.array(numbers, np.int32), name="integers")

    # results

    def grid_of(self, node: fx.Node) -> QParams | None:
        """The grid that an op's result is rounded to, if it reads integers alone; None for one that runs in float."""
        operands: list[Any] = [value for value in node.all_input_nodes if value not in self.constants]
        read = [self.values.get(value) for value in operands]
        if not is_rounded(node) or any(isinstance(value, Value) and value.grid is None for value in read):
            return None
        (reader,) = node.users
        if clamp_bounds(reader) is not None:
            (reader,) = reader.users
        return QParams.of(float(reader.args[1]), int(reader.args[2]))  # type: ignore[arg-type]

    def emit(
        self,
        op: str,
        operands: Sequence[Value | None],
        like: Value,
        name: str,
        grid: QParams | None = None,
        **options: Any,
    ) -> Value:
        """Add an op whose result has the shape and order of ``like``."""
        dtype = np.dtype(np.int8) if grid is not None else like.stored.dtype
        dtype = np.dtype(np.float32) if grid is None and dtype == np.int8 else dtype
        result = self.file.tensor(name, like.stored.shape, dtype, grid)
        self.file.op(op, [None if value is None else value.stored for value in operands], result, **options)
        return Value(result, like.order)

    def like(self, node: fx.Node, order: Order) -> Value:
        """What a node gives, as far as it is known before: its shape, in an order."""
        shape = first_shape(node)
        return Value(FileTensor(-1, tuple(shape[dim] for dim in order), np.dtype(np.float32)), order)

    def title(self, node: fx.Node) -> str:
        """What a node's tensor is called."""
        return self.titles.get(node) or (op_of(node).name if is_op(node) else node.name)


def first_shape(node: fx.Node) -> tuple[int, ...]:
    """The shape of what a node gives; of several tensors, that of the first."""
    value = node.meta["val"]
    return tuple(int(extent) for extent in (value if isinstance(value, Tensor) else value[0]).shape)


def file_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """What PyTorch's numbers of a type are in the file: float32, truths, or int32."""
    return np.dtype(np.float32 if dtype.is_floating_point else np.bool_ if dtype == torch.bool else np.int32)


def lies_alike(value: Value, order: Order) -> bool:
    """Whether a tensor's numbers lie in memory as they would in another order: only dimensions of size 1 change place."""
    larger = [dim for dim in value.order if value.shape[dim] > 1]
    return larger == [dim for dim in order if value.shape[dim] > 1]


def size(shape: Sequence[int]) -> int:
    """How many numbers a tensor of this shape has."""
    return math.prod(shape)
