"""A command's flags, made from a recipe's options: one name, one rule, one sentence for both."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from quaver.config.load import FLOAT_FLAGS, Command
from quaver.config.options import as_written, options_of
from quaver.config.recipe import DataOptions, ModelOptions, Phase, QuantPhase, Recipe, RunOptions

PANELS = {"Model": ModelOptions, "Data": DataOptions, "Run": RunOptions}
TRAINING, QUANTIZATION, FLOAT = "Training", "Quantization", "Float training before it"


def with_recipe_flags(command: Command) -> Callable[[Callable[[dict[str, str]], None]], Callable[..., None]]:
    """Let a function of a table of flags be a command that has them: those that were given, as they were written."""

    def wrap(run: Callable[[dict[str, str]], None]) -> Callable[..., None]:
        def call(**flags: str | None) -> None:
            run({name: value for name, value in flags.items() if value is not None})

        parameters = [_parameter(name, one, panel) for name, one, panel in _options(command)]
        parameters.append(_plain("recipe", "Recipe file (YAML); flags go before what it says.", "Run"))
        parameters.append(_plain("checkpoint", "Folder of a run to go on with; excludes --pretrained_fp32_model.", "Run"))
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__name__, call.__doc__ = run.__name__, run.__doc__
        return call

    return wrap


def as_in_a_recipe(name: str) -> Any:
    """A flag that means what it means to ``quaver quantize``, for a command that has only a few of them."""
    one, panel = next((one, panel) for found, one, panel in _options("train") if found == name)
    return typer.Option(f"--{name}", help=one.metadata["words"], rich_help_panel=panel, show_default=False)


def model_and_data(recipe: Recipe) -> list[str]:
    """The flags that name the model and the data of a recipe, but not its weights: those that are not as by default."""
    words = []
    for name, one in (options_of(ModelOptions) | options_of(DataOptions)).items():
        value = getattr(recipe, name)
        if value != one.metadata["default"] and name != "pretrained_fp32_model":
            words += [f"--{name}", as_written(value)]
    return words


class FlagsCommand(TyperCommand):
    """A command whose true-or-false flags may stand alone: ``--bf16`` is ``--bf16 true``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Complete the flags that stand alone, then parse as ever."""
        complete: list[str] = []
        for position, word in enumerate(args):
            complete.append(word)
            following = args[position + 1] if position + 1 < len(args) else "--"
            if word.startswith("--") and word[2:].replace("-", "_") in SWITCHES and following.startswith("--"):
                complete.append("true")
        return super().parse_args(ctx, complete)


def _options(command: Command) -> Iterator[tuple[str, "Field[Any]", str]]:
    for panel, part in PANELS.items():
        yield from ((name, one, panel) for name, one in options_of(part).items())
    kind = QuantPhase if command == "quantize" else Phase
    for name, one in options_of(kind).items():
        yield name, one, TRAINING if name in options_of(Phase) else QUANTIZATION
    if command == "quantize":
        for flag, name in FLOAT_FLAGS.items():
            yield flag, options_of(Phase)[name], FLOAT


def _parameter(name: str, one: "Field[Any]", panel: str) -> inspect.Parameter:
    default, rule = one.metadata["default"], one.metadata["rule"]
    kinds = {bool: "true|false", int: "NUMBER", float: "NUMBER", dict: "KEY=VALUE,…"}
    metavar = "|".join(rule.choices) if rule.choices and len(rule.choices) < 6 else kinds.get(type(default), "TEXT")
    return _plain(name, one.metadata["words"], panel, metavar, as_written(default))


def _plain(name: str, words: str, panel: str, metavar: str = "PATH", shown: str = "") -> inspect.Parameter:
    flag = typer.Option(f"--{name}", help=words, metavar=metavar, rich_help_panel=panel, show_default=shown or False)
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=Annotated[str | None, flag])


SWITCHES = {
    name
    for kind in (Recipe, QuantPhase)
    for name, one in options_of(kind).items()
    if isinstance(one.metadata["default"], bool) or name == "use_gpu"
}
