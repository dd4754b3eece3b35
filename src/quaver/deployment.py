"""The output tree of a conversion: ``float/``, ``int8/`` and ``mobile/``, each runnable."""

from importlib.util import find_spec
from pathlib import Path

from quaver.errors import StageError
from quaver.export import export, export_each
from quaver.passes import ConvertToInt8Pass, TransformForMobilePass
from quaver.program import Program, Stage
from quaver.program.storage import save


def write_tree(frozen: Program, folder: str | Path) -> list[Path]:
    """Write a frozen program three ways, and give what was written.

    ``float/``: the program with integers stored as float32, as trained. ``int8/``: the same stored as int8, and for the
    engines ``int8/model.onnx`` and, where OpenVINO is installed, ``int8/model.xml``. ``mobile/``: the mobile form, and
    ``mobile/model.pte`` where ExecuTorch is installed.
    """
    if not isinstance(frozen, Program) or frozen.stage is not Stage.FROZEN:
        raise StageError("write_tree: takes the frozen program that quaver.convert gives.")
    folder = Path(folder)
    files = {"openvino": folder / "int8" / "model.xml", "onnx": folder / "int8" / "model.onnx"}
    if find_spec("openvino") is None:
        del files["openvino"]
    mobile = TransformForMobilePass().apply(frozen)
    written = [
        save(frozen, folder / "float"),
        save(ConvertToInt8Pass().apply(frozen), folder / "int8"),
        *export_each(frozen, files),
        save(mobile, folder / "mobile"),
    ]
    if find_spec("executorch") is not None:
        written.append(export(mobile, folder / "mobile" / "model.pte", target="executorch"))
    return written
