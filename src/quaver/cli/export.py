"""``quaver export`` and ``quaver convert``: from a saved program to files that engines run."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quaver.cli.report_files import warn
from quaver.engines import DEFAULT, ENGINES
from quaver.errors import ConfigError
from quaver.program import Stage
from quaver.reading import read_text

if TYPE_CHECKING:
    from quaver.program import Program


def export(
    program: Annotated[Path, typer.Argument(help="Folder of a frozen, int8 or float program (quaver.save).")],
    out: Annotated[Path, typer.Argument(help="Folder, or file with the engine's suffix.")],
    target: Annotated[str, typer.Option(help=f"The engine: {', '.join(ENGINES)}.")] = DEFAULT.name,
    same_on_amx: Annotated[
        bool,
        typer.Option("--same_on_amx/--no_same_on_amx", help="The same bits on processors with AMX; without, faster there."),
    ] = True,
    input_layout: Annotated[
        str, typer.Option("--input_layout", help="How the file takes images: nchw, or nhwc (litert: channels last).")
    ] = "nchw",
    labels: Annotated[
        Path | None, typer.Option(help="Text file with a label for each class, a line each, for the file to tell.")
    ] = None,
    mean: Annotated[str, typer.Option(help="Mean of pixels (0 to 255), for the file to tell: 123.7,116.3,103.5.")] = "",
    std: Annotated[str, typer.Option(help="Their deviation, likewise.")] = "",
) -> None:
    """Write a program for an engine, open the file again and compare."""
    from quaver.export import export as write
    from quaver.program.storage import load

    console = Console()
    with console.status(f"writing for {target}"):
        file = write(
            load(program),
            out,
            target=target,
            same_on_amx=same_on_amx,
            input_layout=input_layout,
            labels=_lines(labels) if labels is not None else (),
            mean=_numbers("--mean", mean),
            std=_numbers("--std", std),
        )
    console.print(f"{file}: written, opened again and compared.", highlight=False)


def convert(
    program: Annotated[
        Path | None,
        typer.Argument(help="Folder of the trained program (quaver.save), prepared or frozen.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Argument(help="Folder that float/, int8/ and mobile/ go to.", show_default=False)
    ] = None,
    quant_model_path: Annotated[
        Path | None, typer.Option("--quant_model_path", "--model_path", help="The program, as a flag.", show_default=False)
    ] = None,
    int8_model_save_path: Annotated[
        Path | None, typer.Option("--int8_model_save_path", "--save_path", help="The folder, as a flag.", show_default=False)
    ] = None,
    quantized_ops: Annotated[
        str,
        typer.Option(
            "--quantized_ops",
            "--ops_to_quantize",
            help="Op types that run in int8, as conv2d,pool2d; other ops run in float. Default: all that were trained so.",
        ),
    ] = "",
    fp32_model_save_path: Annotated[str, typer.Option(hidden=True)] = "",
    op_ids_to_skip: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Freeze a trained program and write the tree of artefacts: float/, int8/ and mobile/, each runnable."""
    from quaver.deployment import without_mobile_file, write_tree
    from quaver.pipeline import convert as freeze
    from quaver.program.storage import load

    if fp32_model_save_path:
        raise ConfigError("--fp32_model_save_path: quaver train and quaver quantize leave the float model, in fp32/.")
    if op_ids_to_skip:
        raise ConfigError("--op_ids_to_skip: ops have names here, and stay float where --not_quant_pattern is in them.")
    console = Console()
    trained = load(_the_one("PROGRAM", program, "--quant_model_path", quant_model_path))
    place = _the_one("OUT", out, "--int8_model_save_path", int8_model_save_path)
    types = [name.strip() for name in quantized_ops.split(",") if name.strip()]
    if types:
        frozen = freeze(trained, quantized_ops=types)
    else:
        frozen = freeze(trained) if trained.stage is not Stage.FROZEN else trained
    left_out: list[str] = []
    with console.status("writing float/, int8/ and mobile/"):
        files = write_tree(frozen, place, left_out=left_out.append)
    for file in files:
        console.print(str(file), highlight=False)
    for sentence in left_out:
        warn(console, sentence)
    if missing := without_mobile_file(place):
        console.print(missing, highlight=False, markup=False, soft_wrap=True)
    if types:
        console.print(_in_int8_and_float(trained, frozen), highlight=False, soft_wrap=True)


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file).splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--labels {file}: cannot be read: {error}.") from error


def _numbers(flag: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")] if text else []
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}: takes numbers, with commas: 123.7,116.3,103.5.") from error


def _the_one(argument: str, given: Path | None, flag: str, by_flag: Path | None) -> Path:
    """What was given as an argument or, as the reference's scripts have it, behind a flag."""
    if (given is None) == (by_flag is None):
        raise ConfigError(f"convert: give {argument} or {flag}{', not both' if given else ''}: quaver convert PROGRAM OUT.")
    return given or by_flag or Path()


def _in_int8_and_float(trained: "Program", frozen: "Program") -> str:
    """Which of the ops that were trained with quantizers run how, in words."""
    trained_so = {op.name for op in trained.ops() if op.quantized}
    counts = {
        kind: Counter(op.type for op in frozen.ops() if op.name in trained_so and op.quantized is kind)
        for kind in (True, False)
    }
    listing = {kind: ", ".join(f"{count} {name}" for name, count in by_type.items()) for kind, by_type in counts.items()}
    return f"In int8: {listing[True]}. In float, with the weights as they were rounded: {listing[False] or 'nothing'}."
