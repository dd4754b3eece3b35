"""Problems of a recipe that can be seen before anything is run."""

from pathlib import Path

from quaver.analysis import Analysis
from quaver.checking import nearest
from quaver.config.load import Command
from quaver.config.options import as_written
from quaver.config.recipe import AS_WEIGHTS, FROM_DATA, NO_TARGET, Phase, QuantPhase, Recipe
from quaver.data.by_name import NAMES
from quaver.data.folder import is_split
from quaver.engines import ENGINES
from quaver.errors import ConfigError, StorageError
from quaver.experiment.run_folder import weights_at
from quaver.models.by_name import canonical
from quaver.models.external import is_external

DETECTORS = ("yolov3_mobilenet_v1",)
REFERENCES_NAMES = {"imagenet": "ilsvrc"}
"""Data sets that the reference's scripts call otherwise (``--data imagenet``)."""


def recipe_problems(recipe: Recipe, command: Command) -> list[str]:
    """Unknown names, missing files, options that exclude each other: a line each."""
    problems = [*_model(recipe), *data_problems(recipe)]
    phase = recipe.quantize if command == "quantize" else recipe.train
    problems += _learning_rate(phase)
    if phase.nesterov and not (phase.momentum_rate and phase.optimizer == "momentum"):
        problems.append("nesterov=True: needs the optimizer momentum, and a momentum_rate above 0.")
    if (recipe.quantize.pact_lr, recipe.quantize.pact_l2_decay) != (AS_WEIGHTS, AS_WEIGHTS) and not recipe.quantize.use_pact:
        problems.append("pact_lr and pact_l2_decay: are of PACT's clips, and there are none. Add --use_pact true.")
    detection = dataset_name(recipe) == "voc"
    if recipe.quantize.distill and detection:
        problems.append("distill: learning from the float model's outputs is for classification, and voc is detection.")
    if phase.label_smoothing and detection:
        problems.append("label_smoothing: is for classification, and voc is detection.")
    problems += [*_analysis(recipe), *_target(recipe), *_images(recipe)] if command == "quantize" else []
    if recipe.anchors and not detection:
        problems.append(f"anchors: are for detection, and {dataset_name(recipe)} is classification.")
    return problems


def _learning_rate(phase: Phase) -> list[str]:
    """A warm-up without end, and what the strategy would not look at."""
    problems = []
    if phase.warmup_epochs > phase.num_epochs and not (phase.max_iters or phase.warmup_iters):
        problems.append(f"warmup_epochs={phase.warmup_epochs:g}: longer than the {phase.num_epochs} epochs there are.")
    if phase.warmup_iters > phase.max_iters > 0:
        problems.append(f"warmup_iters={phase.warmup_iters}: longer than the {phase.max_iters} steps there are.")
    falls = [name for name in ("lr_step_epochs", "lr_step_iters") if getattr(phase, name) != getattr(Phase, name)]
    if falls and phase.lr_strategy != "piecewise_decay":
        problems.append(
            f"{falls[0]}={as_written(getattr(phase, falls[0]))}: is for piecewise_decay, and lr_strategy="
            f"{phase.lr_strategy!r}. Add --lr_strategy piecewise_decay."
        )
    return problems


def dataset_name(recipe: Recipe) -> str:
    """The data set that is meant: the one named, or the one that the folder has the layout of, or digits."""
    if recipe.dataset != "auto":
        return REFERENCES_NAMES.get(recipe.dataset, recipe.dataset)
    return "digits" if not recipe.data_dir else _recognized(Path(recipe.data_dir)) or ""


def _recognized(place: Path) -> str | None:
    layouts = {
        "ilsvrc": ("train_list.txt", "val_list.txt"),
        "cifar10": ("cifar-10-batches-bin", "cifar-10-batches-py", "data_batch_1.bin", "data_batch_1"),
        "voc": ("Annotations", "VOCdevkit"),
        "folder": ("train",),
    }
    named = next((name for name, files in layouts.items() if any((place / file).exists() for file in files)), None)
    return named or (None if is_split(place) else "folder")


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


def _analysis(recipe: Recipe) -> list[str]:
    phase = recipe.quantize
    if phase.analysis:
        if not recipe.pretrained_fp32_model and not is_external(recipe.model):  # those may bring their own weights
            return ["analysis: looks at a trained float model. Give its weights with --pretrained_fp32_model."]
    elif phase.init_from and phase.init_from != FROM_DATA:
        try:
            Analysis.load(phase.init_from)
        except StorageError as error:
            return [f"init_from={phase.init_from!r}: {error}"]
    elif phase.init_by != QuantPhase.init_by and not phase.init_from:
        return [f"init_by={phase.init_by!r}: is a figure of an analysis. Give a file of one with --init_from, or data."]
    return []


def _target(recipe: Recipe) -> list[str]:
    phase = recipe.quantize
    if phase.target_drop == NO_TARGET or not (phase.use_pact or phase.init_from):
        return []
    other = "use_pact" if phase.use_pact else "init_from"
    return [f"target_drop={phase.target_drop:g}: the shortest way begins with calibration, and {other} with something else."]


def _images(recipe: Recipe) -> list[str]:
    phase = recipe.quantize
    if not phase.image_layout:
        return ["image_color: says what bytes are. Give --image_layout, too."] if phase.image_color != "RGB" else []
    engine = ENGINES[phase.target]
    if engine.takes_bytes:
        return []
    return [f"image_layout={phase.image_layout!r}: files for {engine.title} take float tensors. Leave it out."]


def data_problems(recipe: Recipe) -> list[str]:
    """An unknown data set, or a missing folder."""
    problems = []
    if recipe.dataset != "auto" and dataset_name(recipe) not in NAMES:
        choices = ", ".join(NAMES)
        problems.append(f"dataset={recipe.dataset!r}: takes one of auto, {choices}.{nearest(recipe.dataset, NAMES)}")
    if recipe.data_dir and not Path(recipe.data_dir).is_dir():
        problems.append(f"data_dir={recipe.data_dir!r}: there is no such folder.")
    elif not dataset_name(recipe):
        problems.append(f"data_dir={recipe.data_dir!r}: its layout is none that is known. Name the data set with --dataset.")
    return problems
