"""What a saved program is made of, read without its weights: its ops, and which reads which."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quaver.errors import StorageError
from quaver.graph.nodes import Op
from quaver.program.history import PassApplied
from quaver.program.op_record import OpRecord, read_record
from quaver.program.stage import Stage
from quaver.program.storage import FORMAT, JSON_NAME, is_tensor
from quaver.records import decoded


@dataclass(frozen=True)
class OpOutline:
    """An op of the evaluation graph, and the ops and inputs whose results it reads."""

    name: str
    type: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Outline:
    """A saved program: its stage and passes, the names and shapes of its inputs, its ops, and its records of them."""

    stage: str
    history: tuple[PassApplied, ...]
    inputs: dict[str, tuple[int | None, ...]]
    ops: tuple[OpOutline, ...]
    records: tuple[OpRecord, ...]


def outline(folder: str | Path) -> Outline:
    """The outline of the program in a folder."""
    path = Path(folder) / JSON_NAME
    body = FORMAT.unsealed(path)
    try:
        inputs = {leaf["name"]: decoded(tuple[int | None, ...], leaf["shape"]) for leaf in body["inputs"] if is_tensor(leaf)}
        return Outline(
            stage=Stage(body["stage"]).value,
            history=decoded(tuple[PassApplied, ...], body["history"]),
            inputs=inputs,
            ops=tuple(_ops(body["graphs"]["eval"], list(inputs))),
            records=tuple(read_record(record) for record in body["records"]),
        )
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path}: the program cannot be read: {type(error).__name__}: {error}.") from error


def _ops(nodes: list[dict[str, Any]], inputs: list[str]) -> Iterator[OpOutline]:
    """The nodes that are ops; what stands between two of them (a quantizer, a cast, a list access) is looked through."""
    waiting = iter(inputs)
    sources: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        read = [source for name in _nodes_in([node["args"], node["kwargs"]]) for source in sources[name]]
        own = tuple(dict.fromkeys(read))
        if "op" in node["meta"]:
            op = decoded(Op, node["meta"]["op"])
            yield OpOutline(op.name, op.type, own)
            own = (op.name,)
        elif node["op"] == "placeholder":
            own = (next(waiting),)
        sources[node["name"]] = own


def _nodes_in(value: Any) -> Iterator[str]:
    """The nodes that a value of the graph refers to."""
    if isinstance(value, dict) and isinstance(value.get("node"), str):
        yield value["node"]
    else:
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from _nodes_in(item)
