"""A program as a ``.tflite`` file: the same for all of LiteRT's kernels."""

from quaver.engines.litert.writer import write

__all__ = ["write"]
