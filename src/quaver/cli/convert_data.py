"""``quaver convert-data``: images and a list of labels become one binary data file."""

import shutil
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.filesize import decimal

from quaver.cli.consoles import progress_bar, results_console
from quaver.cli.report_files import write_report
from quaver.cli.testing import LayoutChoice
from quaver.data.binary import REFERENCE_CLASSES, REFERENCE_SHAPE, BinaryWriter, Layout
from quaver.data.image_list import ListedImage, count_of, read_image_list, refuse_missing, shortened
from quaver.data.images import read_image
from quaver.data.parallel import in_order
from quaver.errors import ConfigError, DataError
from quaver.files import is_stream
from quaver.reading import parse_json, read_text
from quaver.runtime.pool import at_once

_COMMAND = "quaver convert-data"


def run_convert_data(
    images_folder: Path,
    list_file: Path,
    out: Path,
    *,
    size: int,
    classes: int,
    layout: LayoutChoice,
    workers: int,
    skip_broken: bool,
) -> None:
    """Read the images, write the file and the figures."""
    console = results_console()
    report_path = out.with_suffix(".json")
    _refuse_places(images_folder, list_file, out, report_path)
    listed = read_image_list(list_file, classes)
    if not skip_broken:
        refuse_missing(images_folder, listed)
    chosen = _layout(layout, size, classes)
    writer = BinaryWriter(out, image_shape=(3, size, size), classes=classes, layout=chosen)
    _mention_space(console, out, len(listed) * 3 * size * size * 4)
    read = partial(_read, images_folder, size)
    left_out = []
    with (
        warnings.catch_warnings(action="ignore"),  # Pillow's doubts about harmless tags
        writer,
        in_order(read, listed, workers or at_once(threads=1)) as results,
        progress_bar() as progress,
    ):
        bar = progress.add_task("converting", total=len(listed))
        for image, result in zip(listed, results, strict=True):
            progress.advance(bar)
            if not isinstance(result, DataError):
                writer.add(result, image.label)
            elif skip_broken:
                left_out.append({"line": image.line, "path": image.path, "reason": str(result)})
            else:
                raise DataError(f"{list_file}: line {image.line}: {result} --skip-broken leaves out such images.")
        if not len(writer):
            raise DataError(f"{list_file}: none of its images can be read. The first: {left_out[0]['reason']}")
    report = {
        "command": _COMMAND,
        "file": out.name,
        "layout": chosen,
        "images": len(writer),
        "image_shape": [3, size, size],
        "classes": classes,
        "bytes": out.stat().st_size,
        "listed": len(listed),
        "left_out": left_out,
    }
    write_report(report_path, report)
    _show(console, out, report_path, report)


def _read(folder: Path, size: int, image: ListedImage) -> NDArray[np.float32] | DataError:
    """An image, or why there is none."""
    try:
        return read_image(folder / image.path, size)
    except DataError as error:
        return error


def _refuse_places(folder: Path, list_file: Path, out: Path, report: Path) -> None:
    """Everything that would fail, or destroy something, at the end."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: this is not a folder. First comes the folder of images, then the list, then the file.")
    if out.is_dir() or is_stream(out):
        kind = "folder" if out.is_dir() else "device or a pipe"
        raise ConfigError(f"{out}: this is a {kind}. Name the file to write.")
    if out.suffix == ".json":
        raise ConfigError(f"{out}: the figures go to this name. Give the data file another ending, such as .bin.")
    if out.resolve() == list_file.resolve():
        raise ConfigError(f"{out}: this is the list. Name another file to write.")
    if report.exists() and not _is_ours(report):
        raise ConfigError(f"{report}: the figures would replace this file, which this command did not write. Move it away.")


def _is_ours(report: Path) -> bool:
    try:
        content = parse_json(read_text(report))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("command") == _COMMAND


def _layout(choice: LayoutChoice, size: int, classes: int) -> Layout:
    fits = (3, size, size) == REFERENCE_SHAPE and classes == REFERENCE_CLASSES
    return "reference" if choice is LayoutChoice.REFERENCE or (choice is LayoutChoice.AUTO and fits) else "header"


def _mention_space(console: Console, out: Path, needed: int) -> None:
    place = next(folder for folder in out.absolute().parents if folder.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        console.print(
            f"The file will have {decimal(needed)}, and {place} has {decimal(free)} left: it may not fit.", markup=False
        )


def _show(console: Console, out: Path, report_path: Path, report: dict[str, Any]) -> None:
    shape = "x".join(map(str, report["image_shape"]))
    console.print(
        f"{report['images']} images of {shape} are in {out} ({report['layout']} layout, {decimal(report['bytes'])}); "
        f"the figures in {report_path}.",
        markup=False,
    )
    if report["left_out"]:
        lines = [f"line {image['line']}: {_printable(image['reason'])}" for image in report["left_out"]]
        console.print(f"Left out, and not counted, {count_of(lines, 'image')}:\n{shortened(lines)}", markup=False)


def _printable(text: str) -> str:
    """A file name that is not UTF-8 has parts that no terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode()
