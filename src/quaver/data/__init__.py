"""Data sets. What ships with the package needs no download."""

from quaver.data.digits import load_digits

__all__ = ["load_digits"]
