"""A program as the ONNX file that TensorRT builds an engine from; a file that breaks one of its rules is not written."""

from pathlib import Path
from typing import Any

from quaver.engines.engine import WriteOptions
from quaver.engines.tensorrt.rules import broken_in
from quaver.errors import EngineError
from quaver.onnx.model import checked_proto, model_of
from quaver.program import Program


def write(program: Program, file: Path, origin: dict[str, Any], options: WriteOptions) -> None:
    """Write a program as ``model.onnx``."""
    proto = checked_proto(model_of(program), origin)
    refused = [broken for broken in broken_in(proto) if broken.fatal]
    if refused:
        more = f" And {len(refused) - 1} more." if len(refused) > 1 else ""
        raise EngineError(f"export: TensorRT does not take the file: {refused[0]}.{more} Nothing was written.")
    file.write_bytes(proto.SerializeToString())
