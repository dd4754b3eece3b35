"""The end of every script here: a trained program as a file for OpenVINO, compared with what was trained."""

from tempfile import TemporaryDirectory

import quaver


def deploy(program, batch):
    """Convert, export, verify; the last line printed is what the table says, and given back is whether it passed."""
    frozen = quaver.convert(program.eval()) if program.stage.trains else program
    with TemporaryDirectory() as folder:
        result = quaver.verify(frozen, quaver.export(frozen, folder), [batch])
    print(result)
    layers = str(frozen).partition(": ")[2].partition(" convolutions")[0]
    integers = "all integers equal" if result.integers_equal == 1 else f"{result.integers_equal:.4%} of integers equal"
    print(f"{layers} layers in int8, {integers}, {'passed' if result.passed else 'FAILED'}")
    return result.passed
