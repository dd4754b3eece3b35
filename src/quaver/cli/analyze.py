"""``quaver analyze``: where a program's ranges, errors and sensitive layers are."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quaver.cli.consoles import progress_bar, results_console
from quaver.cli.flags import as_in_a_recipe, with_flags_of
from quaver.cli.image_source import Images, Source, image_size_of, open_batches
from quaver.cli.report_files import refuse_unwritable
from quaver.config.load import load_recipe
from quaver.errors import ConfigError
from quaver.program import Stage

if TYPE_CHECKING:
    from quaver.analysis import Analysis
    from quaver.analysis.findings import LayerStatistics, Score
    from quaver.program import Program


@with_flags_of(Source, "source")
def analyze(
    program: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of the program (quaver.save): float, prepared, frozen or int8. Or give --model and its weights."
        ),
    ] = None,
    *,
    source: Source,
    model: Annotated[str, as_in_a_recipe("model")] = "",
    model_options: Annotated[str, as_in_a_recipe("model_options")] = "",
    pretrained_fp32_model: Annotated[str, as_in_a_recipe("pretrained_fp32_model")] = "",
    class_dim: Annotated[str, as_in_a_recipe("class_dim")] = "",
    image_shape: Annotated[str, as_in_a_recipe("image_shape", help="Channels, height, width; default: the program's.")] = "",
    workers: Annotated[int, as_in_a_recipe("workers", min=0, show_default=True)] = 0,
    sensitivity: Annotated[
        int, typer.Option(help="Images on which each layer alone, and all but it, are quantized; 0: leave this out.", min=0)
    ] = 0,
    target_drop: Annotated[
        float | None, typer.Option(help="Propose layers to leave float so that accuracy drops by at most this (0.01).")
    ] = None,
    rows: Annotated[int, typer.Option(help="Layers to show, worst first; 0: all. The JSON file has all.", min=0)] = 20,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the analysis here, for --init-from too.")] = None,
) -> None:
    """Look at every quantized tensor, weight and layer of a program, in one pass over the data.

    With --model and --pretrained_fp32_model, as quaver quantize takes them, it is the float model that is looked at.
    """
    from quaver.analysis import analyze as run_analysis
    from quaver.program.storage import load

    console = results_console()
    refuse_unwritable(json_path)
    named = {"model": model, "model_options": model_options, "class_dim": class_dim}
    named = {flag: value for flag, value in (named | {"pretrained_fp32_model": pretrained_fp32_model}).items() if value}
    if named and program is not None:  # the only argument is the data then
        if source.data is not None:
            raise ConfigError(f"{program} and --{next(iter(named))}: both name what to look at. Give one of them.")
        program, source = None, replace(source, data=str(program))
    if target_drop is not None and not sensitivity:
        raise ConfigError("--target-drop needs accuracies: say on how many images with --sensitivity 512.")
    if program is None and not named:
        raise ConfigError(
            "analyze: name a program's folder, or a model: --model NAME --pretrained_fp32_model out/fp32.safetensors."
        )
    stored = None if program is None else load(program)
    if stored is not None and sensitivity and not stored.stage.trains:
        raise ConfigError(
            f"--sensitivity {sensitivity}: {program} is {stored.stage.value} and has no float layers to compare with. Give "
            "the float model in its place: --model NAME --pretrained_fp32_model out/fp32.safetensors."
        )
    source = replace(source, image_shape=image_shape, workers=workers)
    images = open_batches(source, image_size_of(stored) if stored else None)
    loaded = stored or float_program(named, images)
    with progress_bar() as progress:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=images.count if what == "statistics" else total)
            progress.update(tasks[what], completed=done)

        analysis = run_analysis(
            loaded, images.batches, sensitivity_images=sensitivity, target_drop=target_drop, on_progress=show
        )
    show_analysis(console, analysis, rows)
    if json_path is not None:
        analysis.save(json_path)
        console.print(f"{json_path}: written.")
    elif loaded.stage in (Stage.FLOAT, Stage.PREPARED):
        console.print("Nothing was kept: --json FILE writes the analysis, for quantizers to start from and for the report.")


def float_program(flags: dict[str, str], images: Images) -> "Program":
    """The model that these flags of ``quaver quantize`` name, for such images."""
    import torch

    from quaver.capture import capture
    from quaver.experiment.run_folder import weights_at
    from quaver.models import build, load_weights
    from quaver.models.external import is_external

    recipe = load_recipe(None, flags, "quantize")
    weights = recipe.pretrained_fp32_model
    if not is_external(recipe.model) and not weights:  # others may bring their own
        raise ConfigError(f"--model {recipe.model}: give its weights, too: --pretrained_fp32_model out/fp32.safetensors.")
    classes, shape = recipe.class_dim or images.classes, images.image_shape
    model = build(recipe.model, num_classes=classes, image_size=shape[1], **recipe.model_options)
    if weights:
        load_weights(model, weights_at(weights))
    return capture(model, (torch.zeros(1, *shape),))


TEXT_COLUMNS = ("layer", "type", "bits")
NAME = 24
"""Letters of a layer's name that stand in one line, whatever columns that costs."""

SPARED = ("zeros", "moving", "type", "in dB", "w dB", "largest", "clipped", "bits", "without")
"""Columns that a narrow screen does without, the first of them first."""


def show_analysis(console: Console, analysis: "Analysis", rows: int) -> None:
    """The layers, worst first; what the network scores; what to leave float."""
    shown = [_cells(analysis, layer) for layer in analysis.worst_first()[: rows or None]]
    columns = _columns_for(shown, console.width)
    layers = f"{len(shown)} of {len(analysis.layers)} quantized layers"
    table = Table(title=f"{layers}, worst first, over {analysis.images} images")
    for column in columns:
        is_name = column == "layer"
        table.add_column(
            column,
            justify="left" if column in TEXT_COLUMNS else "right",
            overflow="fold" if is_name else "ellipsis",
            no_wrap=not is_name,
        )
    for cells in shown:
        table.add_row(*(escape(cells[column]) for column in columns))
    console.print(table)
    left_out = [column for column in (shown[0] if shown else ()) if column not in columns]
    if left_out:
        console.print(f"No room for {', '.join(left_out)}: a wider window has, and a file or a pipe.")
    for name, problem in analysis.not_finite().items():
        console.print(f"[red]{escape(name)}[/]: {problem}.")
    if analysis.sensitivity is not None:
        summary = analysis.sensitivity
        console.print(
            f"{summary.measure} on {summary.images} images: float {_score(summary.floating)}, every layer quantized "
            f"{_score(summary.quantized)}.",
        )
        if summary.left_out:
            console.print(f"Images with NaN or Inf, left out of this: {summary.left_out}.")
    if analysis.proposal is not None:
        _show_proposal(console, analysis)


def _cells(analysis: "Analysis", layer: "LayerStatistics") -> dict[str, str]:
    """A row of the table, by the columns' titles."""
    read = [analysis.tensor(name) for name in layer.inputs]
    widest = max(read, key=lambda tensor: tensor.largest, default=None)
    cells = {"layer": layer.name, "type": layer.type, "bits": _bits(layer)}
    cells |= {
        "largest": "" if widest is None else f"{widest.largest:.3g}",
        "moving": "" if widest is None else f"{widest.moving_max:.3g}",
        "clipped": "" if widest is None else f"{widest.clipped:.2%}",
        "zeros": "" if widest is None else f"{widest.zeros:.1%}",
    }
    if analysis.knows_weight_noise:
        noises = {"in dB": layer.input_sqnr_db, "w dB": layer.weight_sqnr_db, "dB": layer.sqnr_db}
    else:
        noises = {"input dB": layer.sqnr_db}
    cells |= {title: _decibels(noise) for title, noise in noises.items()}
    return cells if analysis.sensitivity is None else cells | {"only": _score(layer.only), "without": _score(layer.without)}


def _columns_for(rows: list[dict[str, str]], room: int) -> list[str]:
    """The columns that fit side by side, nothing cut; long names of layers may take several lines."""
    titles = rows[0] if rows else {}
    widths = {title: max(cell_len(text) for text in (title, *(row[title] for row in rows))) for title in titles}
    widths |= {"layer": min(widths.get("layer", 0), NAME)}
    for spared in (*SPARED, ""):
        if sum(width + 3 for width in widths.values()) < room:  # two spaces and a line each, and a line
            break
        widths.pop(spared, None)
    return list(widths)


def _show_proposal(console: Console, analysis: "Analysis") -> None:
    proposal = analysis.proposal
    assert proposal is not None
    if not proposal.layers:
        sentence = f"Every layer can be quantized: the drop is at most {proposal.target_drop:.2%}."
    elif proposal.reached:
        patterns = ", ".join(repr(pattern) for pattern in proposal.not_quant_pattern)
        sentence = (
            f"To keep the drop at or below {proposal.target_drop:.2%}, leave {', '.join(proposal.layers)} float: "
            f"not_quant_pattern=[{patterns}] scores {_score(proposal.score)}."
        )
    else:
        sentence = (
            f"Even with every layer that has weights left float the drop is more than {proposal.target_drop:.2%} "
            f"({_score(proposal.score)})."
        )
    console.print(escape(sentence))


def _bits(layer: "LayerStatistics") -> str:
    weight = "" if layer.weight_bits is None else f"W{layer.weight_bits}"
    return weight + ("" if layer.activation_bits is None else f"A{layer.activation_bits}")


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _score(score: "Score | None") -> str:
    if score is None:
        return ""
    return f"{_decibels(score.sqnr_db)} dB" if score.accuracy is None else f"{score.accuracy:.2%}"
