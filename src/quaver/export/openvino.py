"""A program as an OpenVINO model: ``model.xml`` and ``model.bin``, read from its ONNX form."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import onnx
import openvino as ov

from quaver.errors import EngineError


def write(model: onnx.ModelProto, path: Path, origin: dict[str, Any]) -> None:
    """Write ``path`` (.xml) and its weights beside it; ``origin`` goes into the model's runtime information."""
    try:
        converted = ov.convert_model(BytesIO(model.SerializeToString()))  # a path it would split at commas
    except Exception as error:  # OpenVINO's frontends raise classes of their own
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise EngineError(f"export: OpenVINO cannot read the program: {reason}") from error
    converted.set_rt_info(json.dumps(origin, sort_keys=True), ["quaver"])
    ov.save_model(converted, path, compress_to_fp16=False)  # batch norm's biases and steps are not ours to round
