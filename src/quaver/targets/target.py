"""The facts about a runtime that decide where quantizers go."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """A runtime.

    ``op_types``: what it runs in int8. ``unsigned``: it takes 0 … 255 for tensors that cannot be negative.
    ``fuses_add``: it computes a convolution and the addition behind it in one step, on the unrounded sum; a quantizer
    between the two would be simulated and never executed.
    """

    name: str
    op_types: tuple[str, ...]
    unsigned: bool
    fuses_add: bool
