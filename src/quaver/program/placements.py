"""Where a program's quantizers sit, and why an op has none: everything the passes decided, as plain data."""

from dataclasses import dataclass, field
from typing import Any

from quaver.engines import DEFAULT
from quaver.program.reason import Reason

Options = dict[str, Any]


@dataclass(frozen=True)
class OpPlan:
    """What is to be quantized of one op: its weight, and which of its tensor inputs, each with a quantizer's options."""

    weight: Options | None = None
    inputs: dict[int, Options] = field(default_factory=dict)


@dataclass(frozen=True)
class Placements:
    """What the passes want quantized (``plan``), what they declined and why, and what became of it.

    ``reasons`` says of every float op why it is one. ``root`` is where the quantizers are mounted; ``quantizers`` maps a
    tensor's name to the module path of its quantizer; ``weights`` maps those of weights to the parameter, or to nothing
    where the model computes the weight from its parameters; ``roles`` says for each op which tensors it reads and writes, as
    what. ``target`` is the engine they were placed for: once frozen, the program computes as that engine does.
    """

    root: str = ""
    plan: dict[str, OpPlan] = field(default_factory=dict)
    declined: dict[str, Reason] = field(default_factory=dict)
    reasons: dict[str, Reason] = field(default_factory=dict)
    quantizers: dict[str, str] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    roles: dict[str, dict[str, str]] = field(default_factory=dict)
    quantized: frozenset[str] = frozenset()
    target: str = DEFAULT.name
