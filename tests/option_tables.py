"""The tables of options in the docs, made from the declarations; ``python tests/option_tables.py`` writes them anew."""

import re
from pathlib import Path

from quaver.config import QATConfig, QuantConfig
from quaver.config.options import as_written, options_of
from quaver.config.recipe import Phase, QuantPhase, Recipe

DOCS = Path(__file__).parent.parent / "docs"
PLACE = re.compile(r"(<!-- options: (\w+).*? -->\n).*?(\n<!-- end -->)", re.DOTALL)
LONGEST = 80  # letters of a default; one that is longer is said in words


def table(kind):
    """A row per option: its name, its default, what it takes (a recipe says that when it is wrong), what it does."""
    is_config = kind in (QuantConfig, QATConfig)
    known = options_of(Phase) if kind is QuantPhase else {}
    rows = [("key", "default", "takes", ""), ("---",) * 4] if is_config else [("option", "default", ""), ("---",) * 3]
    for name, one in options_of(kind).items():
        if name in known:
            continue
        default, rule, words = (one.metadata[key] for key in ("default", "rule", "words"))
        shown = repr(default) if is_config else as_written(default)
        also = ", ".join(f"`{other}`" for other in one.metadata["also"])
        words += f" Also {also}." if also else ""
        cell = f"`{shown}`" if 0 < len(shown) <= LONGEST else ""
        if kind is Phase and (other := options_of(QuantPhase)[name].metadata["default"]) != default:
            cell += f" (`{as_written(other)}`)"
        rows.append((f"`{name}`", cell, *([rule.words] if is_config else []), words))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


TABLES = {kind.__name__: kind for kind in (QuantConfig, QATConfig, Recipe, Phase, QuantPhase)}


def rewritten(page):
    """A page with the tables as they should be."""
    return PLACE.sub(lambda found: f"{found[1]}\n{table(TABLES[found[2]])}\n{found[3]}", page)


if __name__ == "__main__":
    for path in DOCS.glob("*.md"):
        path.write_text(rewritten(path.read_text()))
