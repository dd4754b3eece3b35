"""What quantization does to a network: statistics of its tensors and weights, error and sensitivity of its layers."""

from quaver.analysis.analysis import Analysis
from quaver.analysis.analyze import analyze

__all__ = ["Analysis", "analyze"]
