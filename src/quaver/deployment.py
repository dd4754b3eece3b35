"""The output tree of a conversion: ``float/``, ``int8/`` and ``mobile/``, each runnable, and ``fp32/`` beside them."""

import warnings
from collections.abc import Callable
from pathlib import Path

from quaver.engines import DEFAULT, ENGINES, Engine, mobile_engine
from quaver.errors import ConversionError, EngineError, QuaverWarning, StageError
from quaver.export import export_each
from quaver.files import write_atomically, writing
from quaver.image_input import ImageInput
from quaver.passes import ConvertToInt8Pass, TransformForMobilePass
from quaver.program import Program, Stage
from quaver.program.storage import save


def warn(message: str) -> None:
    """Tell someone who calls from Python."""
    warnings.warn(message, QuaverWarning, stacklevel=3)


def write_tree(
    frozen: Program, folder: str | Path, *, image: ImageInput | None = None, left_out: Callable[[str], None] = warn
) -> list[Path]:
    """Write a frozen program three ways, and give what was written.

    ``float/``: the program with integers stored as float32, as trained. ``int8/``: the same stored as int8, and for the
    engines ``int8/model.onnx`` and, where OpenVINO is installed, ``int8/model.xml``; beside it a folder with the file of the
    engine that the program was made for, if that has one of its own (``tensorrt/``). ``mobile/``: the mobile form, and
    ``mobile/model.pte`` and ``mobile/model.tflite`` where ExecuTorch and LiteRT are installed. A program may have no mobile
    form, or one that an engine has no words for: ``left_out`` is then told why. `without_mobile_file` says where the
    engine's file is missing. With ``image`` the engines' files take a camera's bytes as it says.
    """
    if not isinstance(frozen, Program) or frozen.stage is not Stage.FROZEN:
        raise StageError("write_tree: takes the frozen program that quaver.convert gives.")
    folder = Path(folder)
    written = [
        save(frozen, folder / "float"),
        save(ConvertToInt8Pass().apply(frozen), folder / "int8"),
        *export_each(frozen, _files_in(folder / "int8") | _own_file(frozen, folder), image=image),
    ]
    _explain(folder / "float", FLOAT_IS)
    try:
        mobile = TransformForMobilePass().apply(frozen)
    except (StageError, ConversionError) as error:
        old = f" What is in {folder / 'mobile'} was there before." if (folder / "mobile").exists() else ""
        left_out(f"mobile/ is left out: {error}{old}")
        return written
    written.append(save(mobile, folder / "mobile"))
    for target, file in _files_in(folder / "mobile").items():
        try:
            written += export_each(mobile, {target: file}, image=image)
        except EngineError as error:
            left_out(f"{file} is left out: {error}")
    return written


def write_float_model(
    program: Program, folder: str | Path, engine: Engine = DEFAULT, *, left_out: Callable[[str], None] = warn
) -> list[Path]:
    """Write ``fp32/``: a float program for the engines that run ``int8/``, to be measured beside it.

    Where int8 is made for another ``engine`` that reads a file of its own (``model.tflite``), there is one for that, too;
    ``left_out`` is told why if it has no words for the program.
    """
    place = Path(folder) / "fp32"
    files = {name: place / file.name for name, file in _files_in(Path(folder) / "int8").items()}
    written = export_each(program, files)
    own = place / engine.file_in(Path(folder)).name
    if engine.can_write and own not in written:
        try:
            written += export_each(program, {engine.name: own})
        except EngineError as error:
            left_out(f"{own} is left out: {error}")
    _explain(place, FP32_IS)
    return written


FLOAT_IS = """\
This is the int8 model, its integers stored as float32; the folder has the reference's name. It computes what ../int8
computes, on PyTorch (quaver.load, quaver test). It is not the float model that quantization started from: quaver train
and quaver quantize leave that one in ../fp32, for the testers and for quaver bench --float.
"""
FP32_IS = """\
This is the float model, as it was before quantization, for the engines that run ../int8, and for the one that int8 was
made for: what int8 is measured against (quaver test, the C++ tester, quaver bench ../int8 --float ., and for model.tflite
or model.pte quaver bench ../mobile --float .). Its weights for training are in ../fp32.safetensors.
"""


def _explain(folder: Path, text: str) -> None:
    with writing(folder, "What was there is untouched."):
        write_atomically(folder / "README.txt", text.encode())


def without_mobile_file(folder: Path) -> str:
    """Where ``mobile/`` has no file for its engine, that it has none and how to get it; otherwise nothing."""
    engine = mobile_engine()
    file = engine.file_in(folder)
    if engine.can_write or file.exists() or not file.parent.exists():
        return ""
    return (
        f"{file.parent} holds the program, but no {file.name}: {engine.package} is not installed. After pip install "
        f"{engine.requirement}, quaver export {folder / 'float'} {file.parent} --target {engine.name} writes it."
    )


def _own_file(frozen: Program, folder: Path) -> dict[str, Path]:
    """The file of the engine that a program was made for, where that lies in a folder of its own."""
    engine = ENGINES[frozen.placements.target]
    elsewhere = engine.folder not in ("int8", "mobile")
    return {engine.name: engine.file_in(folder)} if elsewhere and engine.can_write else {}


def _files_in(folder: Path) -> dict[str, Path]:
    """The files of the engines that can be written here."""
    engines = [engine for engine in ENGINES.values() if engine.folder == folder.name and engine.can_write]
    return {engine.name: engine.file_in(folder.parent) for engine in engines}
