"""What a file tells of its use: the labels of its classes, and what pixels are brought to scale with."""

import math
from typing import Any

import torch

from quaver.checking import Rule, check
from quaver.engines import WriteOptions
from quaver.errors import ConfigError
from quaver.program import Program


def refuse_misfits(program: Program, options: WriteOptions) -> None:
    """Say what cannot be told of a program: labels for classes that it does not have, deviations of zero."""
    check("export", options.use(), _RULES)
    if bool(options.mean) != bool(options.std):
        raise ConfigError("export: mean and std belong together: (pixel − mean) / std. Give both, or none.")
    if options.labels and isinstance(program, Program):
        with torch.no_grad():
            scores = program.flat(*program.signature.zeros(1))[0]
        if scores.shape[-1:] != (len(options.labels),):
            raise ConfigError(
                f"export: {len(options.labels)} labels, and the first output of the program has the shape "
                f"{tuple(scores.shape)}: it takes as many as its last dimension is long."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


_RULES = {
    "labels": Rule("a text of one line for each class", lambda labels: all(map(_is_line, labels))),
    "mean": Rule("a number for all channels, or one each", lambda values: all(map(_is_number, values))),
    "std": Rule(
        "positive numbers, as many as mean", lambda values: all(_is_number(value) and value > 0 for value in values)
    ),
}
