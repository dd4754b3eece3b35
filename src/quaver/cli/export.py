"""``quaver export`` and ``quaver convert``: from a saved program to files that engines run."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quaver.cli.consoles import progress_console, results_console
from quaver.cli.flags import with_flags_of
from quaver.cli.image_flags import ImageFlags
from quaver.cli.notices import warn
from quaver.engines import DEFAULT, ENGINES
from quaver.errors import ConfigError
from quaver.program import Stage

if TYPE_CHECKING:
    from quaver.program import Program

FLOAT_IS_INT8 = "float/ is the int8 model, its integers stored as float32: float/README.txt says more."


@with_flags_of(ImageFlags, "images")
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
    *,
    images: ImageFlags,
) -> None:
    """Write a program for an engine, open the file again and compare."""
    from quaver.export import export as write
    from quaver.program.storage import load

    with progress_console().status(f"writing for {target}"):
        loaded = load(program)
        image = images.image(loaded.preprocessing)
        file = write(loaded, out, target=target, same_on_amx=same_on_amx, input_layout=input_layout, image=image)
    results_console().print(f"{file}: written, opened again and compared.", markup=False)


@with_flags_of(ImageFlags, "images")
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
    *,
    images: ImageFlags,
) -> None:
    """Freeze a trained program and write the tree of artefacts: float/, int8/ and mobile/, each runnable.

    float/ is the int8 model, too, its integers stored as float32.
    """
    from quaver.deployment import without_mobile_file, write_tree
    from quaver.pipeline import convert as freeze
    from quaver.program.storage import load

    if fp32_model_save_path:
        raise ConfigError("--fp32_model_save_path: quaver train and quaver quantize leave the float model, in fp32/.")
    if op_ids_to_skip:
        raise ConfigError("--op_ids_to_skip: ops have names here, and stay float where --not_quant_pattern is in them.")
    console = results_console()
    trained = load(_the_one("PROGRAM", program, "--quant_model_path", quant_model_path))
    place = _the_one("OUT", out, "--int8_model_save_path", int8_model_save_path)
    types = [name.strip() for name in quantized_ops.split(",") if name.strip()]
    if types:
        frozen = freeze(trained, quantized_ops=types)
    else:
        frozen = freeze(trained) if trained.stage is not Stage.FROZEN else trained
    left_out: list[str] = []
    with progress_console().status("writing float/, int8/ and mobile/"):
        files = write_tree(frozen, place, image=images.image(frozen.preprocessing), left_out=left_out.append)
    for file in files:
        console.print(str(file), markup=False)
    console.print(FLOAT_IS_INT8)
    for sentence in left_out:
        warn(sentence)
    if missing := without_mobile_file(place):
        console.print(missing, markup=False)
    if types:
        console.print(_in_int8_and_float(trained, frozen), markup=False)


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
