"""The tables of options in the docs, made from the declarations; ``python tests/option_tables.py`` writes them anew."""

import re
from pathlib import Path

from quaver.calibration.calibration_options import CalibrationOptions
from quaver.cli.language import Language, catalogue
from quaver.config import QATConfig, QuantConfig
from quaver.config.options import as_written, options_of
from quaver.config.recipe import Phase, QuantPhase, Recipe

DOCS = Path(__file__).parent.parent / "docs"
PLACE = re.compile(r"(<!-- options: (\w+).*? -->\n).*?(\n<!-- end -->)", re.DOTALL)
LONGEST = 80  # letters of a default; one that is longer is said in words


TITLES = {
    Language.ENGLISH: {"key": "key", "option": "option", "default": "default", "takes": "takes"},
    Language.CHINESE: {"key": "键", "option": "选项", "default": "默认值", "takes": "取值"},
}


def table(kind, language=Language.ENGLISH):
    """A row per option: its name, its default, what it takes (a recipe says that when it is wrong), what it does."""
    known = options_of(Phase) if kind is QuantPhase else {}
    columns = ("key", "default", "takes") if kind in CONFIGS else ("option", "default")
    rows = [(*(TITLES[language][column] for column in columns), ""), ("---",) * (len(columns) + 1)]
    for name, one in options_of(kind).items():
        if name in known:
            continue
        default = one.metadata["default"]
        shown = repr(default) if kind in CONFIGS else as_written(default)
        cell = f"`{shown}`" if 0 < len(shown) <= LONGEST else ""
        if kind is Phase and (other := options_of(QuantPhase)[name].metadata["default"]) != default:
            cell += f" (`{as_written(other)}`)"
        rows.append((f"`{name}`", cell, *map(catalogue(language), words_of(kind, one))))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def words_of(kind, one):
    """What the table of a dataclass says in words of one of its options."""
    also = ", ".join(f"`{other}`" for other in one.metadata["also"])
    words = one.metadata["help"] + (f" Also {also}." if also else "")
    return [*([one.metadata["rule"].description] if kind in CONFIGS else []), words]


CONFIGS = (QuantConfig, QATConfig, CalibrationOptions)
TABLES = {kind.__name__: kind for kind in (*CONFIGS, Recipe, Phase, QuantPhase)}


def rewritten(page):
    """The text of a page with the tables as they should be, in its language."""
    language = Language.CHINESE if page.name.endswith(".zh.md") else Language.ENGLISH
    return PLACE.sub(lambda found: f"{found[1]}\n{table(TABLES[found[2]], language)}\n{found[3]}", page.read_text())


if __name__ == "__main__":
    for path in DOCS.glob("*.md"):
        path.write_text(rewritten(path))
