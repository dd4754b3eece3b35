"""A command's flags, made from a recipe's options: one name, one rule, one sentence for both."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from quaver.cli.language import TranslatedCommand
from quaver.config.load import ALIASES, FLOAT_FLAGS, Command
from quaver.config.options import as_written, options_of
from quaver.config.recipe import DataOptions, ModelOptions, Phase, QuantPhase, Recipe, RunOptions

PANELS = {"Model": ModelOptions, "Data": DataOptions, "Run": RunOptions}
Threads = Annotated[int, typer.Option(help="Threads the engine may use.", min=1)]
JsonFile = Annotated[Path | None, typer.Option("--json", help="File for the figures as JSON.")]
RESUME = "resume_checkpoint"
"""What the reference's detection calls ``--checkpoint``."""

# the reference spells its flags with underscores; a hyphen is as good
BOTH_SPELLINGS = {"token_normalize_func": lambda name: name.replace("-", "_")}
TRAINING, QUANTIZATION, FLOAT = "Training", "Quantization", "Float training before it"


def by_any_name(name: str) -> str:
    """A flag as a recipe calls it, whatever the reference's scripts call it.

    >>> by_any_name("pretrained-model"), by_any_name("model_save_dir")
    ('pretrained_fp32_model', 'model_save_dir')
    """
    name = name.replace("-", "_")
    return (ALIASES | {RESUME: "checkpoint"}).get(name, name)


def with_recipe_flags(command: Command) -> Callable[[Callable[[dict[str, str]], None]], Callable[..., None]]:
    """Let a function of a table of flags be a command that has them: those that were given, as they were written."""

    def wrap(run: Callable[[dict[str, str]], None]) -> Callable[..., None]:
        def call(**flags: str | None) -> None:
            run({name: value for name, value in flags.items() if value is not None})

        parameters = [_parameter(name, entry, panel) for name, entry, panel in _options(command)]
        parameters.append(_plain("recipe", "Recipe file (YAML); flags go before what it says.", "Run"))
        parameters.append(_plain("checkpoint", "Folder of a run to go on with; excludes --pretrained_fp32_model.", "Run"))
        return _with_parameters(call, run, parameters)

    return wrap


def with_flags_of(kind: Any, name: str, panel: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a dataclass that a command takes by this name be flags: its fields that are annotated with one, or are options."""
    hints = get_type_hints(kind, include_extras=True)
    hints |= {option: Annotated[hints[option], like_option(kind, option, panel)] for option in options_of(kind)}
    flags = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(kind)
        if get_origin(hints[field.name]) is Annotated
    ]

    def wrap(run: Callable[..., None]) -> Callable[..., None]:
        def call(**given: Any) -> None:
            made = kind(**{flag.name: given.pop(flag.name) for flag in flags})
            run(**given, **{name: made})

        own = inspect.signature(run).parameters.values()
        return _with_parameters(
            call, run, [flag for parameter in own for flag in (flags if parameter.name == name else [parameter])]
        )

    return wrap


def like_option(kind: type, name: str, panel: str) -> Any:
    """A flag for an option of this dataclass: one that is true or false by itself or with ``no_`` in front."""
    option = options_of(kind)[name]
    switches = option.metadata["default"] is None or isinstance(option.metadata["default"], bool)
    flag = f"--{name}/--no_{name}" if switches else f"--{name}"
    return typer.Option(flag, help=option.metadata["help"], rich_help_panel=panel)


def as_in_a_recipe(name: str, **changes: Any) -> Any:
    """A flag that means what it means to ``quaver quantize``, for a command that has only a few of them."""
    entry, panel = next((entry, panel) for other, entry, panel in _options("train") if other == name)
    usual = {"help": entry.metadata["help"], "rich_help_panel": panel, "show_default": False}
    return typer.Option(f"--{name}", **(usual | changes))


def model_and_data(recipe: Recipe) -> list[str]:
    """The flags that name the model and the data of a recipe, but not its weights: those that are not as by default."""
    arguments = []
    for name, option in (options_of(ModelOptions) | options_of(DataOptions)).items():
        value = getattr(recipe, name)
        if value != option.metadata["default"] and name != "pretrained_fp32_model":
            arguments += [f"--{name}", as_written(value)]
    return arguments


class FlagsCommand(TranslatedCommand):
    """A command with the flags of a recipe, as the reference's scripts write them.

    True-or-false flags may stand alone: ``--bf16`` is ``--bf16 true``. Lists may have spaces: ``--step_epochs 30 60``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Complete the flags that stand alone, join lists, refuse in words what has another way here; then parse as ever."""
        complete: list[str] = []
        flag = ""
        for position, word in enumerate(args):
            if word.startswith("-") and not word[1:2].isdigit():
                flag = by_any_name(word.lstrip("-").partition("=")[0])
                if flag in OTHERWISE:
                    raise typer.BadParameter(f"{word}: {OTHERWISE[flag]}", ctx)
            elif flag in LISTS and not args[position - 1].startswith("-"):
                complete[-1] += f",{word}"
                continue
            complete.append(word)
            following = args[position + 1] if position + 1 < len(args) else "--"
            if word.startswith("--") and flag in SWITCHES and "=" not in word and following.startswith("--"):
                complete.append("true")
        return super().parse_args(ctx, complete)


def _options(command: Command) -> Iterator[tuple[str, "Field[Any]", str]]:
    for panel, part in PANELS.items():
        yield from ((name, entry, panel) for name, entry in options_of(part).items())
    kind = QuantPhase if command == "quantize" else Phase
    for name, entry in options_of(kind).items():
        yield name, entry, TRAINING if name in options_of(Phase) else QUANTIZATION
    if command == "quantize":
        for flag, name in FLOAT_FLAGS.items():
            yield flag, options_of(Phase)[name], FLOAT


def _parameter(name: str, entry: "Field[Any]", panel: str) -> inspect.Parameter:
    default, rule = entry.metadata["default"], entry.metadata["rule"]
    kinds = {bool: "true|false", int: "NUMBER", float: "NUMBER", dict: "KEY=VALUE,…"}
    metavar = "|".join(rule.choices) if rule.choices and len(rule.choices) < 6 else kinds.get(type(default), "TEXT")
    others = entry.metadata["also"] if name not in FLOAT_FLAGS else ()
    help_text = entry.metadata["help"] + (f" Also --{', --'.join(others)}." if others else "")
    values = rule.choices or (("true", "false") if isinstance(default, bool) else ())
    return _plain(name, help_text, panel, metavar, as_written(default), values)


def _with_parameters(
    call: Callable[..., None], run: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """A function as typer is to see it: with these parameters, and with what ``run`` says of itself."""
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}
    call.__name__, call.__doc__ = run.__name__, run.__doc__
    return call


def _plain(
    name: str, help_text: str, panel: str, metavar: str = "PATH", shown: str = "", values: tuple[str, ...] = ()
) -> inspect.Parameter:
    """A flag that takes text. A shell completes to ``values``, or to files."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    flag = typer.Option(
        f"--{name}",
        help=help_text,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=shown or False,
        autocompletion=complete if values else None,
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=Annotated[str | None, flag])


DEFAULTS = {name: entry.metadata["default"] for kind in (Recipe, QuantPhase) for name, entry in options_of(kind).items()}
SWITCHES = {name for name, default in DEFAULTS.items() if isinstance(default, bool) or name == "use_gpu"}
LISTS = {name for name, default in DEFAULTS.items() if isinstance(default, tuple)}
OTHERWISE = {
    "checkpoint_epoch": "a run goes on from its newest checkpoint: give its folder with --checkpoint, and no epoch.",
    "c": "options in a file are a recipe: --recipe FILE; quaver check FILE looks at it.",
    "config": "options in a file are a recipe: --recipe FILE; quaver check FILE looks at it.",
    "config_file": "options in a file are a recipe: --recipe FILE; quaver check FILE looks at it.",
    "o": "each option is a flag: --max_iters 30000 --base_lr 0.0001 --milestones 10000,20000.",
    "opt": "each option is a flag: --max_iters 30000 --base_lr 0.0001 --milestones 10000,20000.",
    "r": "a run goes on with --checkpoint DIR.",
    "eval": "the test set is looked at after every epoch anyway; leave it out.",
    "use_tb": "TensorBoard's files are written with --tensorboard.",
}
"""Flags of the reference's training scripts that have no counterpart, and what to do instead."""
