"""An artefact on ONNX Runtime's CPU provider, as it optimizes it."""

from quaver.onnx.session import load

__all__ = ["load"]
