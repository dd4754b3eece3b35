"""What an engine that shows its inside gives: quantized tensors, and the layers it executed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from quaver.engines.file_graph import FileNode

if TYPE_CHECKING:
    from quaver.runtime.runner import Runner

Role = Literal["product", "rounding", "reorder", "other"]
"""What a layer is for: a convolution or matrix product; turning integers into float or back; storing a tensor otherwise."""

WARMUP = 2
"""Calls before times count: the first build the kernels."""


class ModelPart(NamedTuple):
    """A model to run: how many of its first outputs are the program's own, and in which it shows each tensor asked for.

    One may show several: what is rounded twice to one grid is one tensor in the file.
    """

    own: int
    places: dict[str, int]
    run: "Runner"


@dataclass(frozen=True)
class Revealed:
    """Models that show quantized tensors, the last of them with the program's outputs; and all tensors that the file has."""

    parts: list[ModelPart]
    tensors: set[str]


@dataclass(frozen=True)
class ExecutedLayer:
    """A layer as the engine executed it.

    ``precision`` is what it computed on, ``writes`` what its result is stored as. ``reads`` are the layers whose results it
    read, ``origins`` the nodes of the file that it computes. ``file_name`` is its name without what the engine puts
    behind it; empty: the same.
    """

    name: str
    type: str
    role: Role
    precision: str
    writes: str
    microseconds: float
    reads: tuple[str, ...]
    origins: tuple[str, ...]
    layout: str = ""
    kernel: str = ""
    file_name: str = ""


@dataclass(frozen=True)
class Profile:
    """The layers in the order of their execution, and the file as it was given."""

    layers: list[ExecutedLayer]
    file: list[FileNode]


def executed_sources(sources: list[str], graph: dict[str, list[str]], executed: object) -> tuple[str, ...]:
    """The layers whose results arrive, looking through what takes no time (a reshape in place) and past constants."""
    executed_names: dict[str, None] = {}
    for name in sources:
        if name in executed:  # type: ignore[operator]
            executed_names[name] = None
        else:
            executed_names.update(dict.fromkeys(executed_sources(graph.get(name, []), graph, executed)))
    return tuple(executed_names)
