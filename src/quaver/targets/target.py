"""The facts about a runtime that decide where quantizers go and how a program is written for it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """A runtime.

    ``op_types``: what it runs in int8. ``unsigned``: it takes 0 … 255 for tensors that cannot be negative (or has the same
    grid, shifted). ``fuses_add``: it computes a convolution and the addition behind it in one step, on the unrounded sum; a
    quantizer between the two would be simulated and never executed. ``saturates``: on some processors it adds two products
    in 16 bits. ``one_type``: its integer kernels read and write activations of one type, so that signed ones are stored as
    0 … 255, too, 128 added. ``suffix``: the file it reads.
    """

    name: str
    engine: str
    suffix: str
    op_types: tuple[str, ...]
    unsigned: bool
    fuses_add: bool
    saturates: bool
    one_type: bool = False
