"""Problems of a recipe that can be seen before anything is run."""

from pathlib import Path

from quaver.analysis import Analysis
from quaver.checking import nearest
from quaver.config.load import Command
from quaver.config.recipe import QuantPhase, Recipe
from quaver.data.by_name import NAMES
from quaver.errors import ConfigError, StorageError
from quaver.experiment.run_folder import weights_at
from quaver.models.by_name import canonical
from quaver.models.external import is_external

DETECTORS = ("yolov3_mobilenet_v1",)


def recipe_problems(recipe: Recipe, command: Command) -> list[str]:
    """Unknown names, missing files, options that exclude each other: a line each."""
    problems = [*_model(recipe), *data_problems(recipe)]
    phase = recipe.quantize if command == "quantize" else recipe.train
    if phase.warmup_epochs > phase.num_epochs:
        problems.append(f"warmup_epochs={phase.warmup_epochs:g}: longer than the {phase.num_epochs} epochs there are.")
    if phase.nesterov and not (phase.momentum_rate and phase.optimizer == "momentum"):
        problems.append("nesterov=True: needs the optimizer momentum, and a momentum_rate above 0.")
    detection = dataset_name(recipe) == "voc"
    if recipe.quantize.distill and detection:
        problems.append("distill: learning from the float model's outputs is for classification, and voc is detection.")
    if phase.label_smoothing and detection:
        problems.append("label_smoothing: is for classification, and voc is detection.")
    problems += _analysis(recipe.quantize) if command == "quantize" else []
    if recipe.anchors and not detection:
        problems.append(f"anchors: are for detection, and {dataset_name(recipe)} is classification.")
    return problems


def dataset_name(recipe: Recipe) -> str:
    """The data set that is meant: the one named, or the one that the folder has the layout of, or digits."""
    if recipe.dataset != "auto":
        return recipe.dataset
    return "digits" if not recipe.data_dir else _recognized(Path(recipe.data_dir)) or ""


def _recognized(place: Path) -> str | None:
    marks = {
        "ilsvrc": ("train_list.txt", "val_list.txt"),
        "cifar10": ("cifar-10-batches-bin", "cifar-10-batches-py", "data_batch_1.bin", "data_batch_1"),
        "voc": ("Annotations", "VOCdevkit"),
        "folder": ("train",),
    }
    return next((name for name, files in marks.items() if any((place / file).exists() for file in files)), None)


def _model(recipe: Recipe) -> list[str]:
    problems = []
    try:
        architecture = "" if is_external(recipe.model) else canonical(recipe.model)
        if architecture and (architecture in DETECTORS) != (dataset_name(recipe) == "voc"):
            problems.append(
                f"model={recipe.model!r} and dataset={dataset_name(recipe)!r}: one is for detection, the other is not. voc "
                f"goes with {', '.join(DETECTORS)}."
            )
    except ConfigError as error:
        problems.append(str(error))
    if recipe.pretrained_fp32_model and not weights_at(recipe.pretrained_fp32_model).exists():
        problems.append(f"pretrained_fp32_model={recipe.pretrained_fp32_model!r}: there is no such file.")
    return problems


def _analysis(phase: QuantPhase) -> list[str]:
    if phase.init_from:
        try:
            Analysis.load(phase.init_from)
        except StorageError as error:
            return [f"init_from={phase.init_from!r}: {error}"]
    elif phase.init_by != QuantPhase.init_by and not phase.analysis:
        return [f"init_by={phase.init_by!r}: is a figure of an analysis. Give --analysis, or a file with --init_from."]
    return []


def data_problems(recipe: Recipe) -> list[str]:
    """An unknown data set, or a missing folder."""
    problems = []
    if recipe.dataset not in ("auto", *NAMES):
        known = ", ".join(NAMES)
        problems.append(f"dataset={recipe.dataset!r}: takes one of auto, {known}.{nearest(recipe.dataset, NAMES)}")
    if recipe.data_dir and not Path(recipe.data_dir).is_dir():
        problems.append(f"data_dir={recipe.data_dir!r}: there is no such folder.")
    elif not dataset_name(recipe):
        problems.append(f"data_dir={recipe.data_dir!r}: its layout is none that is known. Name the data set with --dataset.")
    return problems
