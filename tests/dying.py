"""OpenVINO for processes that a test starts: the real one, but its first inference ends the process."""

import os

STAND_IN = """
import importlib, os, signal, sys

sys.path = [path for path in sys.path if path != {folder!r}]
del sys.modules["openvino"]
importlib.import_module("openvino").InferRequest.infer = lambda *_, **__: os.kill(os.getpid(), signal.{signal})
"""


def dying_openvino(folder, signal="SIGILL"):
    """Write the stand-in to a folder, for a path of Python's, and give the folder."""
    package = folder / "openvino"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN.format(folder=os.fspath(folder), signal=signal))
    return os.fspath(folder)
