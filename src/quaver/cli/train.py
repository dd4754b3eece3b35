"""``quaver train`` and ``quaver quantize``: a recipe carried out."""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from quaver.analysis import Analysis
from quaver.cli.analyze import show_analysis
from quaver.cli.consoles import progress_console, results_console, table_of
from quaver.cli.flags import model_and_data
from quaver.cli.notices import warn
from quaver.cli.report_files import fail_where_target_was_missed, fail_where_verify_failed
from quaver.cli.screen import Screen
from quaver.config.load import Command, load_recipe
from quaver.deployment import without_mobile_file
from quaver.engines import DEFAULT
from quaver.errors import StoppedError
from quaver.experiment.components import Components, build_components, wants_accelerator
from quaver.experiment.lock import RunLock
from quaver.experiment.results import float_report, int8_report
from quaver.experiment.start import Start, start
from quaver.experiment.training_run import TrainingRun
from quaver.report import write_report as write_page
from quaver.training.interruption import termination_as_interrupt
from quaver.training.listener import Listener, LogFile, MetricsFile, TensorBoard
from quaver.training.ranks import Ranks, join, leave


def run_train(flags: dict[str, str]) -> None:
    """Float training, its weights and its figures."""
    console = results_console()
    with carried_out("train", flags) as run:
        trained = run.to_float()
        if not run.components.ranks.first:
            return
        folder = run.start.folder
        folder.write_weights(trained.program.state_dict())
        report = float_report(run.components, folder, trained)
        folder.write_report(report)
    show(console, run.components, report, {"float": "fp32"}, {"fp32": "fp32/"})
    for sentence in report.get("left_out", []):
        warn(sentence)
    same = model_and_data(run.components.recipe)
    how = shlex.join(["quaver", "quantize", *same, "--pretrained_fp32_model", str(folder.fp32)])
    console.print(f"Weights are in {folder.fp32}; {how} goes on with them.", markup=False)


def run_quantize(flags: dict[str, str]) -> None:
    """Training with quantizers and all that comes of it; or an analysis alone, where that was asked for."""
    console = results_console()
    with carried_out("quantize", flags) as run:
        looks = run.components.recipe.quantize.analysis
        analysis = run.to_analysis() if looks and run.components.ranks.first else None
        report = {} if looks else trained_and_converted(run)
    if analysis is not None:
        show_analysis_result(console, run, analysis)
    if report:
        show_converted(console, run, report)


def trained_and_converted(run: TrainingRun) -> dict[str, Any]:
    """Train, write all there is to write, and give the figures; nothing in any process but the first."""
    before, after = run.to_int8()
    leave(run.components.ranks)
    if not run.components.ranks.first:
        return {}
    run.say("writing float/, int8/, mobile/ and fp32/, and running the engine …")
    if not DEFAULT.can_write:
        file = DEFAULT.file_in(Path())
        run.say(f"{DEFAULT.package} is not installed: {file} is left out. quaver export writes it where it is.")
    report = int8_report(run.components, run.start.folder, before, after)
    run.start.folder.write_report(report)
    return report


def show_converted(console: Console, run: TrainingRun, report: dict[str, Any]) -> None:
    """The figures, and where everything is; exit code 1 where the engine computes something else."""
    folder = run.start.folder
    names = {"float": "fp32", "int8, simulated": "qat", "int8": "int8", deployed_title(report): "deployed"}
    places = {"fp32": "fp32/", "int8": "float/ and int8/", "deployed": f"{report.get('engine_folder', 'int8')}/"}
    show(console, run.components, report, names, places)
    if "agreement" in report:
        values = "" if report["agreement_unit"] == "images" else "the values for "
        count = report["verified_images"]
        console.print(f"The engine agrees with the simulation on {report['agreement']:.2%} of {values}{count} images.")
    for sentence in report.get("left_out", []):
        warn(sentence)
    if missing := without_mobile_file(folder.path):
        console.print(missing, markup=False)
    written = [f"{name}/" for name in ("float", "int8", "mobile", "fp32") if (folder.path / name).exists()]
    console.print(f"Everything is in {folder.path}/: {', '.join(written)}, report.json.")
    console.print("fp32/ is the float model. float/ is the int8 one, its integers stored as float32.")
    fail_where_verify_failed(console, report)
    fail_where_target_was_missed(console, report)


def show_analysis_result(console: Console, run: TrainingRun, analysis: Analysis) -> None:
    """What an analysis found, as a table and drawn, and how to go on."""
    folder, recipe = run.start.folder, run.components.recipe
    show_analysis(console, analysis, rows=20)
    page = folder.path / "report.html"
    write_page([folder.path], page)
    weights = ["--pretrained_fp32_model", recipe.pretrained_fp32_model] if recipe.pretrained_fp32_model else []
    same = [*model_and_data(recipe), *weights, "--model_save_dir", str(folder.path)]
    how = shlex.join(["quaver", "quantize", *same, "--use_pact", "true"])
    console.print(f"Figures are in {folder.analysis}, pictures in {page}. {how} starts from them.", markup=False)


@contextmanager
def carried_out(command: Command, flags: dict[str, str]) -> Iterator[TrainingRun]:
    """A run ready to go, with everyone who listens to it; however it ends, how to go on is said."""
    file = Path(flags.pop("recipe")) if "recipe" in flags else None
    checkpoint = flags.pop("checkpoint", "")
    ranks = join(accelerator=wants_accelerator(load_recipe(file, flags, command)))
    # of several processes one may wait for the others, and hears of no signal till they come: it ends as torchrun has it
    stoppable = termination_as_interrupt() if ranks.world == 1 else nullcontext()
    with Screen(progress_console()) as screen, RunLock() as lock, stoppable:
        begun = start(command, file, flags, checkpoint, screen.notified, lock.take) if ranks.first else None
        begun = ranks.from_first(begun)
        assert begun is not None
        run = TrainingRun(begun, build_components(begun.recipe, ranks), listeners(begun, ranks, screen))
        run.say(words_about(run.components))
        try:
            yield run
        except KeyboardInterrupt as asked:
            number = asked.args[0] if asked.args else signal.SIGINT
            raise StoppedError(f"stopped. Go on with: {begun.resume}", number) from None
        finally:
            leave(ranks)


def listeners(begun: Start, ranks: Ranks, screen: Screen) -> tuple[Listener, ...]:
    """The screen, two files, and TensorBoard if asked for; of several processes, the first's."""
    if not ranks.first:
        return ()
    folder = begun.folder
    without_tensorboard: tuple[Listener, ...] = (screen, MetricsFile(folder.metrics), LogFile(folder.log))
    return (*without_tensorboard, TensorBoard(folder.path / "events")) if begun.recipe.tensorboard else without_tensorboard


def words_about(components: Components) -> str:
    """What is about to be done, in a line."""
    where = torch.cuda.get_device_name(components.device) if components.device.type == "cuda" else "the processor"
    several = f", {components.ranks.world} processes" if components.ranks.world > 1 else ""
    shape = "x".join(str(size) for size in components.image_shape)
    aside = f" (and {len(components.held_out.dataset)} held out to choose by)" if components.held_out else ""
    sizes = f"{len(components.train.dataset)} training{aside} and {len(components.test.dataset)} test images of {shape}"
    return f"{components.recipe.model} on {components.dataset}: {sizes}, {components.classes} classes, on {where}{several}"


def deployed_title(report: dict[str, Any]) -> str:
    """The engine, and on how many images it ran if not on all: its figures are then not those of the rows above."""
    some = report.get("verified_images", 0) < report["test_images"]
    return f"int8, {report.get('engine', '')}" + (f", first {report.get('verified_images')} images" if some else "")


def show(
    console: Console, components: Components, report: dict[str, Any], names: dict[str, str], places: dict[str, str]
) -> None:
    """The figures as a table: a row per form of the model, and where it lies."""
    figures = [key.removeprefix("fp32_") for key in report if key.startswith("fp32_") and key != "fp32_bytes"]
    title = f"{components.recipe.model} on {report['test_images']} test images of {components.dataset}"
    table = table_of(title, "model", "in", *(f"|{name}" for name in figures))
    for title, prefix in names.items():
        values = [report.get(f"{prefix}_{name}") for name in figures]
        if any(value is not None for value in values):
            cells = ("" if value is None else f"{value:.4f}" for value in values)
            table.add_row(title, places.get(prefix, ""), *cells)
    console.print(table)
