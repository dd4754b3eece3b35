"""How a run begins: its recipe from a file, from flags, or from a checkpoint it goes on from."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quaver.config.load import Command, load_recipe, recipe_of, with_flags
from quaver.config.options import as_written
from quaver.config.recipe import NO_TARGET, Recipe
from quaver.errors import ConfigError, StorageError
from quaver.experiment.recipe_checks import dataset_name, recipe_problems
from quaver.experiment.run_folder import FORMAT, RunFolder
from quaver.models.external import is_external
from quaver.records import Figure, MisfitError, decoded
from quaver.training.checkpoint import Checkpoint, Say

# what may differ when a run is resumed without changing the result
HARMLESS = {"data_dir", "workers", "use_gpu", "log_period", "checkpoint_period", "tensorboard", "verify_images"}


# a detector's loss is a sum over all its places, with gradients a thousand times those of a classifier
DETECTION = {"train": {"optimizer": "adamw", "lr": 0.002, "clip_norm": 10}}
DETECTION["quantize"] = DETECTION["train"] | {"lr": 0.0005}
# on the way to a target any epoch may be the last, and the fewer the better: of a rate that stays, the average of the
# weights is good at the end of each, once batch norms are measured anew for it
SHORT = {"quantize": {"lr_strategy": "constant", "ema": 0.98, "reestimate_bn": 100, "distill": 0.7}}


@dataclass(frozen=True)
class Start:
    """Everything a run needs to know at its beginning; ``checkpoint`` is where it goes on, None for a new one."""

    command: Command
    recipe: Recipe
    folder: RunFolder
    checkpoint: Checkpoint | None = None

    @property
    def resume(self) -> str:
        """What to type to go on."""
        own = [word for name, value in _code(self.recipe).items() for word in (f"--{name}", value)]
        return shlex.join(["quaver", self.command, "--checkpoint", str(self.folder.path), *own])


def start(
    command: Command,
    file: Path | None,
    flags: Mapping[str, Any],
    checkpoint: str,
    say: Say,
    claim: Callable[[Path], None] = lambda folder: None,
) -> Start:
    """Read what there is to read, refuse what cannot work, and make the folder ready.

    ``claim`` is called with the folder before anything in it is looked at.
    """
    if checkpoint and flags.get("pretrained_fp32_model"):
        raise ConfigError(
            "--checkpoint and --pretrained_fp32_model exclude each other: a checkpoint has weights of its own. Give the "
            "first to go on with a run, the second to start one."
        )
    recipe = _recipe(file, flags, command)
    if checkpoint:
        resumed = _go_on(command, recipe if file else None, flags, checkpoint, say, claim)
        if resumed is not None:
            return resumed
        recipe = _recipe(file, dict(flags) | {"model_save_dir": str(RunFolder.of(checkpoint).path)}, command)
    folder = RunFolder(Path(recipe.model_save_dir))
    recipe = _from_analysis(recipe, folder, say) if command == "quantize" else recipe
    _refuse_invalid_recipe(recipe, command)
    folder.refuse_file()
    claim(folder.path)
    folder.begin(command, recipe, say)
    return Start(command, recipe, folder)


def _recipe(file: Path | None, flags: Mapping[str, Any], command: Command) -> Recipe:
    """The recipe, with the defaults that its task and its aim want."""
    recipe = load_recipe(file, flags, command)
    if dataset_name(recipe) == "voc":
        return load_recipe(file, flags, command, DETECTION)
    return load_recipe(file, flags, command, SHORT) if recipe.quantize.target_drop != NO_TARGET else recipe


def _from_analysis(recipe: Recipe, folder: RunFolder, say: Say) -> Recipe:
    """The recipe, which with PACT starts from the analysis that was made in its folder, unless it names another start."""
    phase = recipe.quantize
    if not phase.use_pact or phase.analysis or phase.init_from or not folder.was_analysed(recipe):
        return recipe
    say(f"{folder.analysis}: an analysis was made here, and ranges and clips start from it (--init_by {phase.init_by}).")
    return replace(recipe, quantize=replace(phase, init_from=str(folder.analysis)))


def _go_on(
    command: Command,
    recipe: Recipe | None,
    flags: Mapping[str, Any],
    checkpoint: str,
    say: Say,
    claim: Callable[[Path], None],
) -> Start | None:
    """Resume the run in a folder from its newest intact checkpoint, or from its beginning if it wrote none.

    None if no run was ever started there.
    """
    folder = RunFolder.of(checkpoint)
    if not folder.path.exists() and flags.get("model_save_dir") != checkpoint:
        raise ConfigError(f"--checkpoint {checkpoint}: there is no such folder. Leave the flag out to start a run.")
    folder.refuse_file()
    claim(folder.path)
    saved = folder.checkpoints.newest(say)
    if saved is None:
        say(f"{folder.path} holds no checkpoint yet: starting from the beginning.")
        is_finished = folder.report.exists() or folder.ended_with_analysis()
        if not folder.started.exists() or is_finished:
            return None
    record = saved.record if saved else FORMAT.unsealed(folder.started)
    if record.get("command") != command:
        raise ConfigError(f"--checkpoint {checkpoint}: this run was started by `quaver {record.get('command')}`.")
    problems: list[str] = []
    where = saved.name if saved else str(folder.started)
    stored = recipe_of(_recipe_in(record, where), where, problems)
    if problems:
        raise StorageError("\n".join(problems))
    of_folder = recipe is None
    recipe = with_flags(recipe or stored, flags, command, problems)
    if of_folder:
        _refuse_code_of_folder(recipe, flags, checkpoint)
    _refuse_invalid_recipe(recipe, command)
    if saved is None:
        folder.begin_again(say)
        return Start(command, recipe, folder)
    changed = _changed(stored.record(), recipe.record())
    for key in changed:
        say(f"warning: {key} is not what the run was started with: the result will not be that of an uninterrupted one.")
    if changed:
        folder.reopen(say)
    folder.checkpoints.set_aside(after=saved.name)
    return Start(command, recipe, folder, saved)


def _code(recipe: Recipe) -> dict[str, str]:
    """The flags that choose code: the model and its options, if it is not one of the zoo."""
    if not is_external(recipe.model):
        return {}
    options = {"model_options": as_written(recipe.model_options)} if recipe.model_options else {}
    return {"model": recipe.model, **options}


def _refuse_code_of_folder(recipe: Recipe, flags: Mapping[str, Any], checkpoint: str) -> None:
    """What is read from a folder is data: code is run only if the command line names it."""
    unnamed = [word for name, value in _code(recipe).items() if name not in flags for word in (f"--{name}", value)]
    if unnamed:
        raise ConfigError(
            f"--checkpoint {checkpoint}: this run is of {recipe.model!r}, a model from outside the zoo. That is code, and "
            f"what a folder names is not run. If you know it and trust it, add {shlex.join(unnamed)}"
        )


def _recipe_in(record: dict[str, Any], where: str) -> dict[str, Any]:
    """The recipe that a run was started with, and of a checkpoint what it must say besides."""
    try:
        decoded(dict[str, Figure], record.get("float", {}), "float")
        recipe: dict[str, Any] = decoded(dict[str, Any], record["recipe"], "recipe")
    except (LookupError, MisfitError) as error:
        raise StorageError(
            f"{where}: the record of the run is damaged: {error}. Start again without --checkpoint."
        ) from error
    return recipe


def _changed(stored: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    changed = []
    for key, value in now.items():
        if isinstance(value, dict) and isinstance(stored.get(key), dict):
            changed += _changed(stored[key], value, f"{prefix}{key}.")
        elif stored.get(key) != value and key not in HARMLESS:
            changed.append(f"{prefix}{key}")
    return changed


def _refuse_invalid_recipe(recipe: Recipe, command: Command) -> None:
    problems = recipe_problems(recipe, command)
    if problems:
        raise ConfigError("\n".join(problems))
