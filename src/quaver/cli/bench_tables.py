"""What ``quaver bench`` puts on the screen."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from quaver.cli.consoles import table_of
from quaver.measure.executed_layers import ProfiledLayer, titles
from quaver.measure.int8_gaps import Finding

SHOWN = 20
"""Findings that the screen shows; the JSON file has all."""


def show_latencies(console: Console, rows: list[dict[str, Any]], title: str) -> None:
    """Median, 99th percentile, throughput, and the ratio against the best float engine."""
    _show_race(console, rows, title, {"median ms": "median_ms", "p99 ms": "p99_ms"}, ".3f")
    if not any(row["is_float"] for row in rows):
        console.print("No ratio: name the float model with --float to see one.")


def show_throughputs(console: Console, rows: list[dict[str, Any]], title: str) -> None:
    """Images per second with several batches under way, and the ratio against the best float engine."""
    _show_race(console, rows, title, {"streams": "streams"}, "d")


def _show_race(console: Console, rows: list[dict[str, Any]], title: str, figures: dict[str, str], form: str) -> None:
    """Models that took turns: these figures, how many images a second, and the ratio where there is a float model."""
    with_float = any(row["is_float"] for row in rows)
    ratios = ["|over best float"] if with_float else []
    table = table_of(title, "model", "engine", "|batch", *(f"|{column}" for column in figures), "|images/s", *ratios)
    names = short([row["model"] for row in rows])
    for row in rows:
        cells = [_model(row, names), row["engine"], str(row["batch"]), *(f"{row[key]:{form}}" for key in figures.values())]
        cells.append(f"{row['images_per_second']:,.1f}")
        if with_float:
            ratio = row["over_best_float"]
            cells.append("1 (best)" if row["is_best_float"] else "" if ratio is None else f"{ratio:.2f}")
        table.add_row(*cells)
    console.print(table)


def show_footprints(console: Console, rows: list[dict[str, Any]]) -> None:
    """Size on disk, and memory where it was measured."""
    measured = any(row.get("run_bytes") is not None for row in rows)
    memory = ("|memory, loaded", "|memory, at most", "|at batch") if measured else ()
    table = table_of("MiB", "model", "engine", "|files", *memory)
    names = short([row["model"] for row in rows])
    for row in rows:
        cells = [_model(row, names), row["engine"], _mib(row["file_bytes"])]
        if measured:
            cells += [_mib(row["load_bytes"]), _mib(row["run_bytes"]), str(row["batch"])]
        table.add_row(*cells)
    console.print(table)


def show_layers(console: Console, title: str, executed: list[ProfiledLayer]) -> None:
    """Every layer in the order of execution."""
    table = table_of(f"Layers of {title}", "layer", "type", "precision", "|µs", "|share")
    for layer, name in zip(executed, titles(executed).values(), strict=True):
        cells = (layer.type, layer.precision, f"{layer.microseconds:.1f}", f"{layer.share:.1%}")
        table.add_row(escape(name), *cells)
    console.print(table)


def show_findings(console: Console, findings: list[Finding], int8: int, products: int) -> None:
    """Why isn't it faster? The longest first, each with what would remove it."""

    def say(text: str) -> None:
        console.print(escape(text))

    say(f"{int8} of {products} convolutions and matrix products ran in int8.")
    if not findings:
        return
    console.print("[bold]Why isn't it faster?[/]")
    for finding in findings[:SHOWN]:
        say(f"{finding.share:6.1%}  {finding.kind} {finding.layer}, {finding.place}: {finding.why}")
        if finding.remedy:
            say(f"        what would remove it: {finding.remedy}")
    if rest := findings[SHOWN:]:
        say(f"{sum(finding.share for finding in rest):6.1%}  {len(rest)} more, shorter each; --json has them all")


def show_totals(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Time by type of layer."""
    table = table_of(f"Time by type of layer, {title}", "type", "precision", "|layers", "|µs", "|share")
    for row in rows:
        cells = (str(row["layers"]), f"{row['microseconds']:.1f}", f"{row['share']:.1%}")
        table.add_row(row["type"], row["precision"], *cells)
    console.print(table)


def short(paths: list[str]) -> dict[str, str]:
    """For each path as few of its last parts as tell it from the others.

    >>> short(["out/int8/model.xml", "out/float/model.xml"])
    {'out/int8/model.xml': 'int8/model.xml', 'out/float/model.xml': 'float/model.xml'}
    """
    different = list(dict.fromkeys(paths))
    longest = max(len(Path(path).parts) for path in different)
    for count in range(1, longest + 1):
        names = [str(Path(*Path(path).parts[-count:])) for path in different]
        if len(set(names)) == len(names):
            break
    return dict(zip(different, names, strict=True))


def _model(row: dict[str, Any], names: dict[str, str]) -> str:
    return escape(f"{names[row['model']]} ({row['kind'] or 'not from quaver'})")


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:.1f}"
