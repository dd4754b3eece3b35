"""``quaver test``, ``bench`` and ``convert-data``: flags and help, which need no numpy. What they do is beside it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quaver.cli.consoles import results_console
from quaver.cli.flags import JsonFile, Threads
from quaver.engines import packages, suffixes

PACKAGES = ", ".join(packages())


class Truth(StrEnum):
    """A flag's value, as the reference's users write it: ``--with_accuracy_layer=false``."""

    TRUE = "true"
    FALSE = "false"


class LayoutChoice(StrEnum):
    """How the file begins; `auto` is the reference layout where it fits."""

    AUTO = "auto"
    REFERENCE = "reference"
    HEADER = "header"


def run_tester(
    infer_model: Annotated[
        Path,
        typer.Option(
            "--infer_model",
            help=f"Model: {', '.join(suffixes())}, or a folder with one of these, or a saved program. Float or int8.",
        ),
    ],
    infer_data: Annotated[Path, typer.Option("--infer_data", help="Data file, as `quaver convert-data` makes it.")],
    batch_size: Annotated[int, typer.Option("--batch_size", help="Images per batch; the last may be short.", min=1)] = 1,
    skip_batch_num: Annotated[
        int,
        typer.Option(
            "--skip_batch_num",
            help="How many batches at the beginning are warm-up: counted in the accuracy, but not in latency and fps.",
            min=0,
        ),
    ] = 0,
    batch_num: Annotated[
        int, typer.Option("--batch_num", help="How many batches to run, warm-up included; 0 or less: the whole file.")
    ] = 0,
    with_accuracy_layer: Annotated[
        Truth,
        typer.Option(
            "--with_accuracy_layer",
            help="Whether the model holds a layer for labels, as the reference's flag says. Accuracy comes from the labels "
            "of the file either way.",
            case_sensitive=False,
        ),
    ] = Truth.TRUE,
    speed_only: Annotated[
        bool, typer.Option("--speed_only", help="Measure speed alone: labels are not looked at, outputs may be anything.")
    ] = False,
    threads: Threads = 1,
    output: Annotated[int, typer.Option(help="Which output is the logits, counted from 0.", min=0)] = 0,
    json: JsonFile = None,
) -> None:
    """Run a model over a data file: a line per batch, then totals over all images.

    Totals are exact: a short last batch counts as much as it has images.
    Latency is the engine's time alone, without reading the file or compiling the model.
    Flags may be written with - in place of _.
    """
    from quaver.cli.test import run_tests

    # with_accuracy_layer changes nothing: no model here needs labels to run
    run_tests(
        infer_model,
        infer_data,
        batch_size=batch_size,
        skip_batch_num=skip_batch_num,
        batch_num=batch_num,
        with_labels=not speed_only,
        threads=threads,
        output=output,
        json=json,
    )


def bench(
    artefacts: Annotated[
        list[Path],
        typer.Argument(help=f"Models: {', '.join(suffixes())}, or folders with one of these.", show_default=False),
    ],
    float_: Annotated[
        list[Path] | None,
        typer.Option("--float", help="Float model to compare with, on every engine here that reads it; may be repeated."),
    ] = None,
    threads: Threads = 1,
    batch_sizes: Annotated[str, typer.Option(help="Images per call; several with commas.")] = "1,16",
    rounds: Annotated[int, typer.Option(help="Calls of each model that are timed.", min=1)] = 50,
    warmup: Annotated[int, typer.Option(help="Calls of each model before that.", min=0)] = 5,
    engines: Annotated[
        str,
        typer.Option(help=f"Engines to run on, with commas: {PACKAGES}. Default: each file's own."),
    ] = "",
    with_memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure memory, each in a new process.")] = True,
    with_layers: Annotated[bool, typer.Option("--layers", help="Show every layer, and why it isn't faster.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Show the time by type of layer.")] = False,
    throughput: Annotated[
        bool, typer.Option("--throughput", help="Measure images per second with several batches under way, too.")
    ] = False,
    streams: Annotated[
        int | None, typer.Option(help="With --throughput: batches that run at once. Default: as many as cores allow.", min=1)
    ] = None,
    json: JsonFile = None,
) -> None:
    """Measure float and int8 models side by side: they take turns, warmed up, in one run.

    The ratio is against the best float engine on this machine: --float fp32, a folder that quaver train and quaver quantize
    leave, runs on each that is installed. --float model.onnx runs on OpenVINO and on ONNX Runtime, --float model.xml on
    OpenVINO.
    """
    from quaver.cli.bench import engines_named, run_bench, sizes_of
    from quaver.cli.report_files import refuse_unwritable, write_report

    refuse_unwritable(json, make_folder=False)
    report = run_bench(
        results_console(),
        artefacts,
        float_ or [],
        threads=threads,
        sizes=sizes_of(batch_sizes),
        rounds=rounds,
        warmup=warmup,
        wanted=engines_named(engines),
        with_memory=with_memory,
        with_layers=with_layers,
        profile=profile,
        with_throughput=throughput,
        streams=streams,
    )
    if json is not None:
        write_report(json, report)


def convert_data(
    images_folder: Annotated[Path, typer.Argument(help="Folder that the paths of the list start from.")],
    list_file: Annotated[Path, typer.Argument(help="Text file with a path and a label per line; labels count from 0.")],
    out: Annotated[Path, typer.Argument(help="File to write. The figures go beside it, as OUT.json.")],
    size: Annotated[int, typer.Option(help="Height and width of the images in the file.", min=1)] = 224,
    classes: Annotated[int, typer.Option(help="How many classes there are.", min=1)] = 1000,
    layout: Annotated[
        LayoutChoice,
        typer.Option(help="reference: without a header, for 224 and up to 1000 classes; header: any. auto: what fits."),
    ] = LayoutChoice.AUTO,
    workers: Annotated[int, typer.Option(help="How many images are read at a time; 0: one per core.", min=0)] = 0,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out, and do not count, what is missing or cannot be read.")
    ] = False,
) -> None:
    """Put images and labels into one file, as `quaver test` and the C++ tester read it.

    Images are prepared as the reference does it: short side 256 (in proportion
    for another size), RGB, centre cut out, ImageNet's mean and deviation.
    A file that was there before is replaced only when the new one is whole.
    """
    from quaver.cli.convert_data import run_convert_data

    run_convert_data(
        images_folder, list_file, out, size=size, classes=classes, layout=layout, workers=workers, skip_broken=skip_broken
    )
