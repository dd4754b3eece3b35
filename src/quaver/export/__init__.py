"""``quaver.export``: a frozen program as a file that an engine runs."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from quaver.checking import check, one_of
from quaver.engines import DEFAULT, ENGINES, Engine, WriteOptions, suffixes
from quaver.errors import EngineError, StageError, StorageError
from quaver.export.acceptance import compare
from quaver.export.image_refusals import refuse_other_images
from quaver.export.other_engine import cost_of_moving
from quaver.export.packed_weights import say_unpacked
from quaver.export.provenance import carried, checksums, origin_of
from quaver.export.run_script import remove_run_script, run_script
from quaver.files import writing
from quaver.grid import Grid
from quaver.image_input import ImageInput
from quaver.passes.convert_to_int8 import ConvertToInt8Pass
from quaver.preprocessing import Preprocessing
from quaver.program import Program, Stage
from quaver.program.finite import refuse_not_finite
from quaver.program.quantized_tensors import quantized_tensors
from quaver.runtime import Runner
from quaver.runtime.artefact import checksum, provenance_file, script_file
from quaver.runtime.publishing import draft_in, publish
from quaver.runtime.trial import tried

_UNTOUCHED = "What was there is untouched."


def export(
    program: Program,
    path: str | Path,
    target: str = DEFAULT.name,
    *,
    same_on_amx: bool = True,
    input_layout: str = "nchw",
    image: ImageInput | None = None,
    preprocessing: Preprocessing | None = None,
) -> Path:
    """Write a program for an engine, open the file again, compare, and give its path.

    ``path`` is a folder, or the file itself with the engine's suffix: ``.xml`` (openvino), ``.onnx`` (onnx), ``.pte``
    (executorch) and ``.tflite`` (litert); the last two need the extras of these names. tensorrt reads ``.onnx``, too, in a
    form of its own. Weights are stored as int8, by openvino in 4 bits where they need no more. ``<file>.json`` beside it
    says where it comes from. If anything fails, what was at ``path`` before is still there, and nothing else.

    ``same_on_amx``: an OpenVINO file gives the simulation's bits on processors with AMX, too. Without it, signed tensors
    are stored there as OpenVINO would choose: faster by a tenth or more where there are many, and another integer once in
    some hundred thousand. It changes nothing on other processors. ``input_layout="nhwc"``: the file (of litert) takes images
    with their channels last; `quaver.runtime` gives it them so, and takes them as the model does.

    ``image``: the file takes a camera's bytes as this says, in place of the float tensor that the program takes, and
    prepares them itself. Each byte becomes the very integer that the program rounds it to.

    ``preprocessing``: how images are prepared, and what the classes are called, where the program does not know it from
    ``quaver quantize``. It is written into the file, into the JSON beside it, and into ``<file>.py``: a few lines that run
    the file on an image, with the engine's own package alone.
    """
    options = WriteOptions(same_on_amx=same_on_amx, input_layout=input_layout, image=image, preprocessing=preprocessing)
    (file,) = _export_each(program, {target: path}, options)
    return file


def export_each(
    program: Program,
    paths: Mapping[str, str | Path],
    *,
    same_on_amx: bool = True,
    input_layout: str = "nchw",
    image: ImageInput | None = None,
) -> list[Path]:
    """`export` for several engines, by name; what their files have in common is made once. All are written, or none."""
    return _export_each(program, paths, WriteOptions(same_on_amx=same_on_amx, input_layout=input_layout, image=image))


def _export_each(program: Program, paths: Mapping[str, str | Path], options: WriteOptions) -> list[Path]:
    drafts: dict[Path, Path] = {}
    files: list[Path] = []
    without: list[Path] = []
    with ExitStack() as stack:
        for target, path in paths.items():
            file, ready = _checked(program, path, target, options)
            with writing(file.parent, _UNTOUCHED):
                if file.parent not in drafts:
                    drafts[file.parent] = stack.enter_context(draft_in(file.parent))
                own = drafts[file.parent] / str(len(files))
                own.mkdir()
                facts = {"moved": cost_of_moving(program, ready, ENGINES[target]), "same_on_amx": options.same_on_amx}
                _write(ready, own / file.name, ENGINES[target], options, facts)
            files.append(file)
            if not script_file(own / file.name).exists():
                without.append(script_file(file))
            say_unpacked(ready, ENGINES[target])
        for folder, draft in drafts.items():
            with writing(folder, _UNTOUCHED):
                publish(draft)
    for script in without:
        remove_run_script(script)
    return files


def _checked(program: Program, path: str | Path, target: str, options: WriteOptions) -> tuple[Path, Program]:
    """The file to be written, and the program in the form for it, if both can be."""
    check("export", {"target": target}, {"target": one_of(*ENGINES)})
    layouts = {"input_layout": one_of(*ENGINES[target].input_layouts)}
    check(f"export to {target}", {"input_layout": options.input_layout}, layouts)
    if not isinstance(program, Program):
        raise StageError(f"export: takes a program from quaver.convert, not {type(program).__name__}.")
    refuse_other_images(program, ENGINES[target], options)
    return _file(Path(path), ENGINES[target]), form_for(program, ENGINES[target])


def form_for(program: Program, engine: Engine) -> Program:
    """The program in the form that the engine's file holds, in its arithmetic: what the file is compared with."""
    if program.stage is Stage.PREPARED:
        raise StageError("export: the program still trains. Call quaver.convert first, and export what it gives.")
    refuse_other_floats(program)
    refuse_not_finite(program)
    refuse_asymmetric(program, engine)
    return engine.form(ConvertToInt8Pass().apply(program) if program.stage is Stage.FROZEN else program)


def refuse_asymmetric(program: Program, engine: Engine) -> None:
    """Say which tensor has a zero point that the engine is not known to take exactly."""
    if engine.asymmetric or program.stage is Stage.FLOAT:
        return
    for tensor in quantized_tensors(program):
        if tensor.low < 0 and tensor.high > Grid(8).high:
            raise EngineError(
                f"export to {engine.name}: {tensor.name!r} was given a zero point of its own by calibration, for "
                f"{ENGINES[program.placements.target].title}, and {engine.title} is not known to take it exactly. Calibrate "
                f"with target={engine.name!r}, or with asymmetric=False."
            )


def refuse_other_floats(program: Program) -> None:
    """Say which float type keeps a quantized program from being written: engines compute on integers and float32."""
    if program.stage is Stage.FLOAT:
        return
    held = {tensor.dtype for tensor in program.state_dict().values()}
    for dtype in {leaf.dtype for leaf in program.signature.tensors} & held:
        if dtype.is_floating_point and dtype is not torch.float32:
            raise EngineError(
                f"export: the program computes in {str(dtype).removeprefix('torch.')}, and files are written in "
                "float32. Call net.float() first, give float32 inputs, and convert again."
            )


def _file(path: Path, engine: Engine) -> Path:
    if path.suffix not in suffixes():
        return path / f"model{engine.suffix}"
    if path.suffix != engine.suffix:
        raise StorageError(f"{path}: {engine.name} reads {engine.suffix} files. Give this suffix, or a folder.")
    return path


def _write(program: Program, file: Path, engine: Engine, options: WriteOptions, facts: dict[str, Any]) -> None:
    """Everything that belongs to an artefact, in a folder of its own."""
    origin = origin_of(program, engine, options)
    engine.write(program, file, carried(origin), options)
    files = checksums(file.parent)
    tried(file, engine, place="export")
    compared = compare(program, file, engine, reopened(file, engine), options.image)
    beside = origin | facts | {"compared": compared, "files": files}
    beside = json.loads(json.dumps(beside))  # as it will be read: lists for tuples
    text = json.dumps(beside | {"checksum": checksum(beside)}, indent=1, sort_keys=True)
    provenance_file(file).write_text(text + "\n")
    is_scaled = options.image is not None and options.image.size is not None  # how the camera comes to its size, who knows
    if "preprocessing" in origin and engine.script and not is_scaled:
        script_file(file).write_text(run_script(file.name, engine, origin))


def reopened(file: Path, engine: Engine) -> Runner:
    """A runner for what was just written: on its engine, or, where that is not installed, on another that reads the file."""
    others = [other for other in ENGINES.values() if file.suffix in other.reads and other.is_installed]
    return (engine if engine.is_installed or not others else others[0]).load(file, 1)


__all__ = ["export", "export_each", "form_for"]
