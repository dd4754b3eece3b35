"""An artefact's file as a plain graph: what each layer was given to compute on, before an engine rewrites it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["weighted", "rounding", "passes on", "clamp", "sum", "constant", "other"]
"""What a node does: ``passes on`` changes no integers between a rounded tensor and its reader, or a weight and its layer."""

_INTEGERS = ("int8", "uint8", "int8_t", "uint8_t", "i8", "u8")


@dataclass
class FileNode:
    """A node of a file: its inputs as nodes, constants included; a constant's ``dtype``."""

    name: str
    type: str
    kind: Kind
    dtype: str = ""
    inputs: list["FileNode"] = field(default_factory=list)
    readers: list["FileNode"] = field(default_factory=list)

    def connect(self, inputs: Iterable["FileNode"]) -> None:
        """Let the node read these."""
        for source in inputs:
            self.inputs.append(source)
            source.readers.append(self)

    def weight(self) -> "FileNode | None":
        """The constant behind the second input of a convolution or matrix product."""
        if self.kind != "weighted" or len(self.inputs) < 2:
            return None
        source = self.inputs[1].source("passes on", "rounding")
        return source if source.kind == "constant" else None

    def weight_is_int8(self) -> bool:
        """Are the weights stored as integers of 8 bits?"""
        weight = self.weight()
        return weight is not None and weight.dtype in _INTEGERS

    def input_is_rounded(self) -> bool:
        """Was what the layer computes on rounded to a grid?"""
        return bool(self.inputs) and self.inputs[0].source("passes on").kind == "rounding"

    def source(self, *through: Kind) -> "FileNode":
        """The first node in front, or this one, that is none of these kinds; of each, the first input is followed."""
        node = self
        while node.kind in through and node.inputs:
            node = node.inputs[0]
        return node

    def unrounded_reader(self) -> "FileNode | None":
        """Who reads the result before it is rounded, looking through a bias and a clamp such as ReLU; None: nobody."""
        for reader in self.readers:
            if reader.kind == "rounding":
                continue
            if not reader.is_bias_or_clamp():
                return reader
            if behind := reader.unrounded_reader():
                return behind
        return None

    def is_bias_or_clamp(self) -> bool:
        """Something that engines compute together with the layer before it; some files have the bias apart."""
        return self.kind == "clamp" or (self.kind == "sum" and any(source.kind == "constant" for source in self.inputs))


def kinds(**types: str) -> Mapping[str, Kind]:
    """A file's own words for the kinds of nodes: ``kinds(clamp="Relu Clip")``."""
    return {word: kind.replace("_", " ") for kind, names in types.items() for word in names.split()}  # type: ignore[misc]
