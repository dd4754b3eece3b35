"""``quaver.export``: a frozen program as a file that an engine runs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from quaver.config.check import check, one_of
from quaver.errors import EngineError, StageError, StorageError
from quaver.export.acceptance import compare
from quaver.export.other_engine import cost_of_moving
from quaver.export.provenance import carried, checksums, origin_of
from quaver.passes import ConvertToInt8Pass, TransformForMobilePass
from quaver.program import Program, Stage
from quaver.program.finite import refuse_not_finite
from quaver.runtime import Runner, load
from quaver.runtime.artefact import checksum, provenance_file
from quaver.runtime.publishing import draft_in, publish
from quaver.runtime.trial import tried
from quaver.targets import TARGETS, Target


def export(program: Program, path: str | Path, target: str = "openvino", *, same_on_amx: bool = True) -> Path:
    """Write a program for an engine, open the file again, compare, and give its path.

    ``path`` is a folder, or the file itself with the engine's suffix: ``.xml`` (openvino), ``.onnx`` (onnx), ``.pte``
    (executorch, which needs the extra of that name). Weights are stored as int8. ``<file>.json`` beside it says where it
    comes from. If anything fails, what was at ``path`` before is still there, and nothing else.

    ``same_on_amx``: an OpenVINO file gives the simulation's bits on processors with AMX, too. Without it, signed tensors
    are stored there as OpenVINO would choose: faster by a tenth or more where there are many, and another integer once in
    some hundred thousand. It changes nothing on other processors.
    """
    (file,) = export_each(program, {target: path}, same_on_amx=same_on_amx)
    return file


def export_each(program: Program, paths: Mapping[str, str | Path], *, same_on_amx: bool = True) -> list[Path]:
    """`export` for several engines, by name; what their files have in common is made once. All are written, or none."""
    common: dict[str, Any] = {}
    drafts: dict[Path, Path] = {}
    files: list[Path] = []
    with ExitStack() as stack:
        for target, path in paths.items():
            file, ready = _checked(program, path, target)
            with _words(file.parent):
                if file.parent not in drafts:
                    drafts[file.parent] = stack.enter_context(draft_in(file.parent))
                own = drafts[file.parent] / str(len(files))
                own.mkdir()
                facts = {"moved": cost_of_moving(program, ready, TARGETS[target]), "same_on_amx": same_on_amx}
                _write(ready, own / file.name, TARGETS[target], common, facts)
            files.append(file)
        for folder, draft in drafts.items():
            with _words(folder):
                publish(draft)
    return files


def _checked(program: Program, path: str | Path, target: str) -> tuple[Path, Program]:
    """The file to be written, and the program in the form for it, if both can be."""
    check("export", {"target": target}, {"target": one_of(*TARGETS)})
    if not isinstance(program, Program):
        raise StageError(f"export: takes a program from quaver.convert, not {type(program).__name__}.")
    return _file(Path(path), TARGETS[target]), form_for(program, TARGETS[target])


@contextmanager
def _words(folder: Path) -> Iterator[None]:
    """What the disk refuses, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written to: {error}. What was there is untouched.") from error


def form_for(program: Program, target: Target) -> Program:
    """The program in the form that the target's file holds, in the engine's arithmetic: what the file is compared with."""
    if program.stage is Stage.PREPARED:
        raise StageError("export: the program still trains. Call quaver.convert first, and export what it gives.")
    refuse_other_floats(program)
    refuse_not_finite(program)
    if target.suffix == ".pte":
        return program if program.stage in (Stage.MOBILE, Stage.FLOAT) else TransformForMobilePass().apply(program)
    program = ConvertToInt8Pass().apply(program) if program.stage is Stage.FROZEN else program
    return program.copy(placements=replace(program.placements, target=target.name))


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


def _file(path: Path, target: Target) -> Path:
    if path.suffix not in {known.suffix for known in TARGETS.values()}:
        return path / f"model{target.suffix}"
    if path.suffix != target.suffix:
        raise StorageError(f"{path}: {target.name} reads {target.suffix} files. Give this suffix, or a folder.")
    return path


def _write(program: Program, file: Path, target: Target, common: dict[str, Any], facts: dict[str, Any]) -> None:
    """Everything that belongs to an artefact, in a folder of its own; ``common`` keeps what another artefact needs, too."""
    origin = origin_of(program, target)
    if target.suffix == ".pte":
        from quaver.export.executorch import serialized

        file.write_bytes(serialized(program))
    else:
        from quaver.export.onnx import model_of
        from quaver.export.onnxruntime import for_onnxruntime

        if "onnx" not in common:
            common["onnx"] = model_of(program)
        model = for_onnxruntime(common["onnx"]) if target.one_type else common["onnx"]
        del model.metadata_props[:]
        entry = model.metadata_props.add()
        entry.key, entry.value = "quaver", json.dumps(carried(origin), sort_keys=True)
        if target.suffix == ".xml":
            from quaver.export import openvino

            openvino.write(model, file, carried(origin), same_on_amx=facts["same_on_amx"])
        else:
            file.write_bytes(model.SerializeToString())
    files = checksums(file.parent)
    tried(file, place="export")
    compared = compare(program, file, reopened(file))
    beside = origin | facts | {"compared": compared, "files": files}
    beside = json.loads(json.dumps(beside))  # as it will be read: lists for tuples
    text = json.dumps(beside | {"checksum": checksum(beside)}, indent=1, sort_keys=True)
    provenance_file(file).write_text(text + "\n")


def reopened(file: Path) -> Runner:
    """A runner for what was just written; an ONNX file is read by OpenVINO where ONNX Runtime is not installed."""
    try:
        return load(file)
    except EngineError:
        if file.suffix != ".onnx":
            raise
        from quaver.runtime import openvino

        return openvino.load(file, 1)


__all__ = ["export", "export_each", "form_for"]
