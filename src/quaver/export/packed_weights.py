"""What weights of few bits are worth in a file: engines hold them in 4 bits, or in 8 like all others."""

import logging

import torch

from quaver.engines import Engine
from quaver.program import Program

LARGEST = 7
"""Weights of 4 bits are at most this large."""


def say_unpacked(program: Program, engine: Engine) -> None:
    """Say of a file with weights of at most 4 bits that it is no smaller for it, where it is not."""
    integers = [tensor for tensor in program.state_dict().values() if tensor.dtype is torch.int8 and tensor.numel() > 1]
    small = [tensor for tensor in integers if int(tensor.abs().max()) <= LARGEST]
    if small and not engine.packs_weights:
        logging.getLogger("quaver").warning(
            "export: %d of %d weights need 4 bits or fewer, and %s's file holds 8 for each number: it is no smaller than "
            "with 8-bit weights.",
            len(small),
            len(integers),
            engine.title,
        )
