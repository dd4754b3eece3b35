"""Where an artefact comes from: written into it and beside it."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quaver.engines import Engine, WriteOptions
from quaver.export.full_range import overflowing
from quaver.program import Program

FORMAT, VERSION = "quaver.artefact", 1


def origin_of(program: Program, engine: Engine, options: WriteOptions) -> dict[str, Any]:
    """Version, passes with their options, thresholds, and a hash of the weights. No time stamp: equal runs, equal files.

    ``full_range`` names the layers that overflow on processors without VNNI; without any, the file is safe on all of them.
    ``image`` is there where the file takes bytes, ``preprocessing`` where it is known.
    """
    from quaver import __version__

    image, prepared = options.image, options.preprocessing or program.preprocessing
    return {
        "format": FORMAT,
        "version": VERSION,
        "quaver": __version__,
        "target": engine.name,
        "stage": program.stage.value,
        "config": [step.words() for step in program.history],
        "source": hash_of(program),
        "inputs": [[leaf.name, leaf.shape, str(leaf.dtype).removeprefix("torch.")] for leaf in program.signature.tensors],
        "outputs": program.output_names,
        "full_range": overflowing(program, engine),
        "ops": [asdict(record) for record in program.ops()],
        **({"image": image.record()} if image is not None else {}),
        **({"preprocessing": prepared.record(image, options.input_layout.upper())} if prepared is not None else {}),
    }


def carried(origin: dict[str, Any]) -> dict[str, Any]:
    """The part of `origin_of` that goes into the artefact itself: all but the weights' thresholds, which its scales hold."""
    ops = [
        {key: op[key] for key in ("name", "type", "quantized", "reason")}
        | {"thresholds": {role: value for role, value in op["thresholds"].items() if role != "weight"}}
        for op in origin["ops"]
    ]
    return origin | {"ops": ops}


def hash_of(program: Program) -> str:
    """SHA-256 over the program's tensors, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(program.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
