"""An artefact's file as a plain graph: what each layer was given to compute on, before an engine rewrites it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quaver.errors import EngineError
from quaver.operators import Kind, names_in_files

ROUNDS = frozenset({"FakeQuantize", "QuantizeLinear"})
WEIGHTED = names_in_files(Kind.CONVOLUTION, Kind.LINEAR, Kind.MATRIX_PRODUCT)
# between a rounded tensor and its reader, or a weight and its convolution, these change no integers; of each, the first
# input is followed. Integers go back to steps by the latter two, with constants
_PASS_ON = names_in_files(Kind.MOVE) | {"DequantizeLinear", "Convert", "Cast", "Subtract", "Multiply"}
_CLAMPS = names_in_files(Kind.CLAMP)
_INTEGERS = ("int8", "uint8", "int8_t", "uint8_t", "i8", "u8")


@dataclass
class Node:
    """A node of a file: its inputs as nodes, constants included; a constant's ``dtype``."""

    name: str
    type: str
    dtype: str = ""
    inputs: list["Node"] = field(default_factory=list)
    readers: list["Node"] = field(default_factory=list)

    def weight(self) -> "Node | None":
        """The constant behind the second input of a convolution or matrix product."""
        if self.type not in WEIGHTED or len(self.inputs) < 2:
            return None
        source = _follow(self.inputs[1], _PASS_ON | ROUNDS)
        return source if source.type == "Constant" else None

    def weight_is_int8(self) -> bool:
        """Are the weights stored as integers of 8 bits?"""
        weight = self.weight()
        return weight is not None and weight.dtype in _INTEGERS

    def input_is_rounded(self) -> bool:
        """Was what the layer computes on rounded to a grid?"""
        return bool(self.inputs) and _follow(self.inputs[0], _PASS_ON).type in ROUNDS

    def unrounded_reader(self) -> "Node | None":
        """Who reads the result before it is rounded, looking through a bias and a clamp such as ReLU; None: nobody."""
        for reader in self.readers:
            if reader.type in ROUNDS:
                continue
            if not reader.is_bias_or_clamp():
                return reader
            if found := reader.unrounded_reader():
                return found
        return None

    def is_bias_or_clamp(self) -> bool:
        """Something that engines compute together with the layer before it; OpenVINO's files have the bias apart."""
        return self.type in _CLAMPS or (self.type == "Add" and any(source.type == "Constant" for source in self.inputs))


def _follow(node: Node, through: frozenset[str]) -> Node:
    while node.type in through and node.inputs:
        node = node.inputs[0]
    return node


def openvino_graph(model: Any) -> list[Node]:
    """The nodes of a model that OpenVINO read."""
    nodes: dict[str, Node] = {}
    for op in model.get_ordered_ops():
        node = Node(op.get_friendly_name(), op.get_type_name())
        if op.get_output_size():
            node.dtype = op.get_output_element_type(0).get_type_name()
        _connect(node, (nodes[port.get_source_output().get_node().get_friendly_name()] for port in op.inputs()))
        nodes[node.name] = node
    return list(nodes.values())


def onnx_graph(path: Path) -> list[Node]:
    """The nodes of an ONNX file."""
    try:
        import onnx
    except ImportError as error:
        raise EngineError("onnx is not installed: the layers of .onnx files are read with it. pip install onnx.") from error
    graph = onnx.load(path).graph
    types = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    made = {value.name: Node(value.name, "Constant", types[value.data_type]) for value in graph.initializer}
    nodes = []
    for node in graph.node:
        read = Node(node.name or node.output[0], node.op_type)
        _connect(read, (made.setdefault(name, Node(name, "Parameter")) for name in node.input if name))
        made.update(dict.fromkeys(node.output, read))
        nodes.append(read)
    return nodes


def _connect(node: Node, inputs: Iterable[Node]) -> None:
    for source in inputs:
        node.inputs.append(source)
        source.readers.append(node)
