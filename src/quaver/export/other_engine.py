"""A program that was made for one engine, exported for another: what that costs, measured on the spot."""

import logging
from typing import Any

import numpy as np

from quaver.engines import Engine
from quaver.export.acceptance import inputs_for
from quaver.export.integers import simulation
from quaver.program import Program, Stage

FAR = 30.0
"""Decibels below which it is said aloud: rounding alone, in another place here and there, stays above."""


def cost_of_moving(program: Program, form: Program, engine: Engine) -> dict[str, Any]:
    """How far the outputs of ``form``, in the arithmetic of ``engine``, are from those of the program as it was made.

    Nothing for a program that is where it belongs. The inputs are those of the check after export.
    """
    made_for = program.placements.target
    if program.stage is Stage.FLOAT or made_for == engine.name:
        return {}
    inputs = inputs_for(program)
    own, moved = (
        [output.double().numpy() for output in simulation(each, inside=False).run(*inputs)[0]] for each in (program, form)
    )
    signal = sum(float(np.square(output).sum()) for output in own)
    noise = sum(float(np.square(output - other).sum()) for output, other in zip(own, moved, strict=True))
    decibels = 10 * float(np.log10(signal / noise)) if signal and noise else None  # equal
    logging.getLogger("quaver").log(
        logging.WARNING if decibels is not None and decibels < FAR else logging.INFO,
        "export: the program was made for %s. As %s computes it, its outputs are %s. Trained with target=%r it is exact.",
        made_for,
        engine.name,
        "the same" if decibels is None else f"{decibels:.1f} dB from that",
        engine.name,
    )
    return {"made_for": made_for, "signal_to_noise_db": decibels}
