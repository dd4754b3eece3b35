"""A recipe from a file and from flags: all problems at once, each with its place and the nearest right word."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml

from quaver.checking import nearest, problems, shown
from quaver.config.options import as_value, options_of, other_names, rules_of
from quaver.config.recipe import Phase, QuantPhase, Recipe
from quaver.config.recipe_yaml import RecipeLoader
from quaver.errors import ConfigError
from quaver.reading import read_text

Command = Literal["train", "quantize"]
LARGEST = 1 << 20  # bytes of a recipe; a long one has some thousand
TABLES: dict[str, type] = {"train": Phase, "quantize": QuantPhase}
ALIASES = other_names(Recipe, QuantPhase)
"""Names that the reference's scripts and documents have for what is called otherwise here."""

# of these, QuantConfig's own names
ALIASES |= {entry.metadata["same_as"]: name for name, entry in options_of(QuantPhase).items() if entry.metadata["same_as"]}
# flags of `quaver quantize` for the float training that comes before it
FLOAT_FLAGS = {"float_epochs": "num_epochs", "float_lr": "lr"}


def load_recipe(
    path: Path | None, flags: Mapping[str, Any], command: Command, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> Recipe:
    """The recipe of a file, or the defaults, with the flags of a command over it.

    ``defaults`` are options of the phases that stand in for the usual ones.
    """
    all_problems: list[str] = []
    content = read_yaml(path) if path else {}
    for name, options in (defaults or {}).items():
        if isinstance(content.get(name) or {}, Mapping):  # if not, that is said below
            content = content | {name: {**options, **(content.get(name) or {})}}
    recipe = recipe_of(content, str(path), all_problems)
    recipe = with_flags(recipe, flags, command, all_problems)
    if all_problems:
        raise ConfigError("\n".join(all_problems))
    return recipe


def read_yaml(path: Path) -> dict[str, Any]:
    """The tables of a recipe file."""
    try:
        content = yaml.load(read_text(path, LARGEST), RecipeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}.") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds no options. A recipe is lines such as `model: MobileNetV1`.")
    return content


def recipe_of(content: Mapping[str, Any], where: str, messages: list[str]) -> Recipe:
    """A recipe from plain values; what is wrong with them is added to ``messages``."""
    top = {ALIASES.get(key, key): value for key, value in content.items() if key not in TABLES}
    phases = {}
    for name, kind in TABLES.items():
        table = content.get(name) or {}
        if not isinstance(table, Mapping):
            messages.append(f"{where}: {name}: takes a table of options, such as `num_epochs: 10`, not {shown(table)}.")
            table = {}
        named = {ALIASES.get(str(key), str(key)): value for key, value in table.items()}
        phases[name] = _checked(kind, named, f"{where}: {name}", messages)
    for key in [key for key in top if key not in rules_of(Recipe)]:
        tables = [name for name, kind in TABLES.items() if key in rules_of(kind)]
        hint = f" It belongs under {' or '.join(tables)}." if tables else nearest(str(key), [*rules_of(Recipe), *TABLES])
        messages.append(
            f"{where}: has no key {shown(key)}.{hint} Known keys: {', '.join(sorted([*rules_of(Recipe), *TABLES]))}."
        )
        del top[key]
    recipe: Recipe = _checked(Recipe, top, where, messages)
    return replace(recipe, **phases)


def with_flags(recipe: Recipe, flags: Mapping[str, Any], command: Command, messages: list[str]) -> Recipe:
    """The recipe with a command's flags in place of what it says."""
    tables: dict[str, dict[str, Any]] = {"": {}, "train": {}, "quantize": {}}
    for key, value in flags.items():
        if key in FLOAT_FLAGS and command == "quantize":
            tables["train"][FLOAT_FLAGS[key]] = value
        else:
            tables["" if key in rules_of(Recipe) else command][key] = value
    changes: dict[str, Any] = {}
    for name, table in tables.items():
        before: Any = getattr(recipe, name) if name else recipe
        checked = _checked(type(before), table, "command line", messages)
        given = {key: getattr(checked, key) for key in table if key in rules_of(type(before))}
        if name:
            changes[name] = replace(before, **given)
        else:
            changes |= given
    return replace(recipe, **changes)


def _checked(kind: type, table: Mapping[str, Any], where: str, messages: list[str]) -> Any:
    """A table as a dataclass; options with problems keep their defaults, and the problems are noted."""
    options = options_of(kind)
    values = {str(key): _read(value, options[key].metadata) if key in options else value for key, value in table.items()}
    wrong = {key: problems(where, {key: value}, rules_of(kind)) for key, value in values.items()}
    messages += [problem for own_problems in wrong.values() for problem in own_problems]
    return kind(**{key: value for key, value in values.items() if not wrong[key]})


def _read(written: Any, option: Mapping[str, Any]) -> Any:
    return as_value(written, option["default"], option["rule"].choices)
