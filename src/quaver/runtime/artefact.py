"""Finding an artefact's file, and checking it against the checksums that were written with it."""

import hashlib
import json
from pathlib import Path
from typing import Any

from quaver.engines import suffixes
from quaver.errors import StorageError
from quaver.image_input import ImageInput
from quaver.reading import MOST_BINARY, parse_json, read_bytes, read_text
from quaver.records import decoded
from quaver.runtime.publishing import settle


def find(artefact: str | Path) -> Path:
    """The one file that an engine reads: ``artefact`` itself, or the one in the folder.

    Of a program that lies there for several engines, as ``quaver convert`` leaves it in ``int8/``, the first of `suffixes`.
    """
    return find_all(artefact)[0]


def find_all(artefact: str | Path) -> list[Path]:
    """A model's file, or those of a folder that holds it for several engines, in the order of `suffixes`."""
    path = Path(artefact)
    settle(path if path.is_dir() else path.parent)
    if path.is_dir():
        models = [file for suffix in suffixes() for file in sorted(path.glob(f"*{suffix}"))]
        if len({file.stem for file in models}) != 1:
            names = ", ".join(file.name for file in models) or "none"
            raise StorageError(f"{path}: expected one model ({', '.join(suffixes())}) in the folder, found {names}.")
        return models
    if path.suffix not in suffixes():
        raise StorageError(f"{path}: not a model that an engine reads: {', '.join(suffixes())}.")
    if not path.is_file():
        raise StorageError(f"{path}: there is no such file. quaver.export writes one.")
    return [path]


def provenance_file(path: Path) -> Path:
    """Where the provenance of an artefact stands."""
    return path.with_name(f"{path.name}.json")


def script_file(path: Path) -> Path:
    """Where the lines that run an artefact stand."""
    return path.with_name(f"{path.name}.py")


def provenance(path: Path) -> dict[str, Any]:
    """What was written beside an artefact about its origin; empty for a file from elsewhere."""
    beside = provenance_file(path)
    try:
        text = read_text(beside)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{beside}: cannot be read: {error}. Export the program again.") from error
    try:
        content: dict[str, Any] = decoded(dict[str, Any], parse_json(text))
        decoded(dict[str, str], content["files"])
        if content.pop("checksum") != checksum(content):
            raise ValueError("its checksum differs from the one saved")
    except (ValueError, KeyError) as error:
        raise StorageError(f"{beside}: is damaged, or not Quaver's. Export the program again.") from error
    return content


def image_input(path: Path, origin: dict[str, Any]) -> ImageInput | None:
    """How a file of this origin takes a camera's bytes; None where it takes tensors."""
    if "image" not in origin:
        return None
    try:
        image: ImageInput = decoded(ImageInput, origin["image"])
    except ValueError as error:
        raise StorageError(f"{provenance_file(path)}: 'image' is {error}. Export the program again.") from error
    return image


def output_names(path: Path, origin: dict[str, Any]) -> tuple[str, ...]:
    """What the outputs of a file of this origin are called; nothing where it does not say."""
    try:
        names: tuple[str, ...] = decoded(tuple[str, ...], origin.get("outputs", []))
    except ValueError as error:
        raise StorageError(f"{provenance_file(path)}: 'outputs' is {error}. Export the program again.") from error
    return names


def checksum(content: dict[str, Any]) -> str:
    """SHA-256 of a provenance record, itself left out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checked(path: Path) -> dict[str, Any]:
    """The provenance of an artefact, after its files were found to be the ones that were written with it."""
    origin = provenance(path)
    for name, digest in origin.get("files", {}).items():
        file = path.parent / Path(name).name
        try:
            actual = hashlib.sha256(read_bytes(file, MOST_BINARY)).hexdigest()
        except (OSError, ValueError) as error:
            raise StorageError(f"{file}: is missing or cannot be read: {error}. Export the program again.") from error
        if actual != digest:
            raise StorageError(
                f"{file}: the file is damaged or was changed: its checksum is not the one in "
                f"{provenance_file(path).name}. Export the program again."
            )
    return origin
