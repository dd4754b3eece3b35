"""A program as an OpenVINO model: ``model.xml`` and ``model.bin``, read from its ONNX form."""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import onnx
import openvino as ov

from quaver.errors import EngineError

NUMBERED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")  # as OpenVINO names what nobody named


def write(model: onnx.ModelProto, path: Path, origin: dict[str, Any]) -> None:
    """Write ``path`` (.xml) and its weights beside it; ``origin`` goes into the model's runtime information."""
    try:
        converted = ov.convert_model(BytesIO(model.SerializeToString()))  # a path it would split at commas
    except Exception as error:  # OpenVINO's frontends raise classes of their own
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise EngineError(f"export: OpenVINO cannot read the program: {reason}") from error
    _name_by_place(converted)
    converted.set_rt_info(json.dumps(origin, sort_keys=True), ["quaver"])
    ov.save_model(converted, path, compress_to_fp16=False)  # batch norm's biases and steps are not ours to round


def _name_by_place(model: ov.Model) -> None:
    """Names for the ops that have none: OpenVINO numbers them over a process's life, and equal programs make equal files."""
    for place, op in enumerate(model.get_ordered_ops()):
        if op.get_type_name() != "Parameter" and NUMBERED.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(f"{op.get_type_name()}_{place}")
