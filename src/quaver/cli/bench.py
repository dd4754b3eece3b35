"""``quaver bench``: float and int8 side by side, in one run; and, layer by layer, why it isn't faster."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from quaver.checking import nearest
from quaver.cli.bench_tables import (
    show_findings,
    show_footprints,
    show_latencies,
    show_layers,
    show_throughputs,
    show_totals,
)
from quaver.cli.consoles import progress_bar, progress_console
from quaver.engines import engine_of, installed, packages
from quaver.errors import ConfigError, EngineError
from quaver.machine.cpu import cpu
from quaver.machine.packages import version_of
from quaver.measure.executed_layers import ProfiledLayer, layers, products_in_int8, titles, totals
from quaver.measure.footprint import file_size, memory
from quaver.measure.int8_gaps import findings
from quaver.measure.latency import measure
from quaver.measure.throughput import CALLS, measure_throughput
from quaver.program import Stage
from quaver.runtime import Runner
from quaver.runtime.artefact import checked, find, find_all
from quaver.runtime.example_batches import fixed_batch
from quaver.runtime.saved_program import is_program_alone
from quaver.runtime.trial import tried

PACKAGES = packages()
"""The engines, as ``--engines`` calls them."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Contender:
    """An artefact on an engine, a baseline where ``is_float``; ``origin`` is its provenance, empty if it is not Quaver's."""

    path: Path
    engine: str
    is_float: bool
    origin: dict[str, Any]

    @property
    def name(self) -> str:
        """The file and the engine."""
        return f"{self.path} on {self.engine}"

    def facts(self) -> dict[str, Any]:
        """The same, for a record."""
        kind = "float" if self.is_float else self.origin.get("stage", "")
        return {"model": str(self.path), "engine": self.engine, "kind": kind, "is_float": self.is_float}


def run_bench(
    console: Console,
    artefacts: list[Path],
    float_models: list[Path],
    *,
    threads: int = 1,
    sizes: list[int],
    rounds: int,
    warmup: int,
    wanted: list[str] | None = None,
    with_memory: bool = False,
    with_layers: bool = False,
    profile: bool = False,
    with_throughput: bool = False,
    streams: int | None = None,
) -> dict[str, Any]:
    """Measure, show on the console, and give the record that ``--json`` writes."""
    contenders = [contender for path in artefacts for contender in _rivals(console, path, wanted or [])]
    contenders += [contender for path in float_models for contender in _baselines(path, wanted or _installed())]
    for contender in contenders:
        tried(contender.path, PACKAGES[contender.engine])
    runners = {contender.name: installed(contender.engine).load(contender.path, threads) for contender in contenders}
    console.print(f"CPU: {cpu().words()}")
    rows = _raced(console, contenders, runners, sizes, warmup + rounds, partial(measure, rounds=rounds, warmup=warmup))
    for row in rows:
        row |= _over_floats(row, rows, lambda row_of_float: row_of_float["median_ms"])
    show_latencies(console, rows, f"{_threads(threads)}, {rounds} rounds, in turns")
    throughputs: Rows = []
    if with_throughput:
        turns = max(1, rounds // CALLS)
        race = partial(measure_throughput, streams=streams, rounds=turns)
        throughputs = _raced(console, contenders, runners, sizes, turns + 1, race)
        for row in throughputs:
            row |= _over_floats(row, throughputs, lambda row_of_float: 1 / row_of_float["images_per_second"])
        show_throughputs(console, throughputs, f"Throughput: streams of {_threads(threads)}, {turns} rounds, in turns")
    footprints = _footprints(console, contenders, rows, threads, with_memory)
    show_footprints(console, footprints)
    profiles: Rows = []
    report = {
        "cpu": asdict(cpu()) | {"words": cpu().words()},
        "versions": {name: version_of(name) for name in dict.fromkeys(contender.engine for contender in contenders)},
        "threads": threads,
        "rounds": rounds,
        "warmup": warmup,
        "latencies": rows,
        "throughputs": throughputs,
        "footprints": footprints,
        "profiles": profiles,
    }
    for contender in contenders if with_layers or profile else []:
        if not PACKAGES[contender.engine].tells_layers:
            console.print(f"{contender.name}: no layers to show, this engine does not tell what it executes.")
        elif profile or not contender.is_float:
            batch = fixed_batch(runners[contender.name].inputs) or sizes[0]
            executed = layers(contender.path, contender.engine, threads=threads, batch=batch, rounds=rounds)
            profiles.append(_profile(console, contender, executed, batch, with_layers and not contender.is_float, profile))
    return report


# what was asked for


def _installed() -> list[str]:
    return [name for name, engine in PACKAGES.items() if engine.is_installed]


def sizes_of(text: str) -> list[int]:
    """What ``--batch-sizes`` lists."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"--batch-sizes {text!r}: takes whole numbers of at least 1, with commas: 1,16.")
    return list(dict.fromkeys(map(int, parts)))


def engines_named(text: str) -> list[str]:
    """What ``--engines`` lists: packages that are here."""
    names = [name.strip() for name in text.split(",")] if text else []
    for name in names:
        if name not in PACKAGES:
            raise ConfigError(
                f"--engines {name!r}: there is no such engine.{nearest(name, PACKAGES)} Known: {', '.join(PACKAGES)}."
            )
        if not PACKAGES[name].is_installed:
            install = PACKAGES[name].requirement
            raise EngineError(f"--engines: {name} is not installed. Install it with pip install {install}.")
    return list(dict.fromkeys(names))


def _baselines(model: Path, engines: list[str]) -> list[Contender]:
    """A float model on each of the engines that reads it; of a folder with several files, on each its own."""
    if model.is_dir() and is_program_alone(model):
        raise ConfigError(
            f"--float {model}: holds a program for PyTorch and no file for an engine; float/ of a conversion is the int8 "
            f"model. The float one is in {model.parent / 'fp32'}, where quaver train and quaver quantize write it."
        )
    return _each_its_own(model, engines, is_float=True)


def _rivals(console: Console, model: Path, engines: list[str]) -> list[Contender]:
    """A model on the engines that were named; on its own where none were, and of a folder with several files, the first."""
    if engines:
        return _each_its_own(model, engines)
    file, *others = find_all(model)
    for other in others:
        package = engine_of(other, {}).package
        console.print(
            f"{file} is measured. {other.name} is there, too: name it, or its engine (--engines {package}).", markup=False
        )
    return _contenders(file, [])


def _each_its_own(model: Path, engines: list[str], *, is_float: bool = False) -> list[Contender]:
    """A model on each of the engines that reads it; of a folder with several files, on each its own."""
    files = find_all(model)
    readers = {name: [path for path in files if path.suffix in PACKAGES[name].reads] for name in engines}
    found = [
        contender for name, read in readers.items() if read for contender in _contenders(read[0], [name], is_float=is_float)
    ]
    return found or _contenders(files[0], engines, is_float=is_float)


def _contenders(path: Path, engines: list[str], *, is_float: bool = False) -> list[Contender]:
    """The artefact on those of the engines that read it; on its own engine where none are named."""
    path = find(path)
    origin = checked(path)
    if is_float and origin.get("stage", Stage.FLOAT.value) != Stage.FLOAT.value:
        raise ConfigError(f"--float {path}: this is the {origin['stage']} model. quaver train and quantize leave fp32/.")
    readers = [name for name, engine in PACKAGES.items() if path.suffix in engine.reads]
    chosen = [name for name in engines if name in readers] if engines else [engine_of(path, origin).package]
    if not chosen:
        raise ConfigError(f"{path}: {path.suffix} is not read by {' or '.join(engines)}, but by {' and '.join(readers)}.")
    return [Contender(path, name, is_float, origin) for name in chosen]


# figures


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _raced(
    console: Console,
    contenders: list[Contender],
    runners: dict[str, Runner],
    sizes: list[int],
    turns: int,
    race: Callable[..., dict[str, Any]],
) -> Rows:
    """A row per contender and batch size; all contenders of a batch size take turns in a race."""
    fixed = {contender.name: fixed_batch(runners[contender.name].inputs) for contender in contenders}
    races: dict[int, list[Contender]] = {size: [] for size in sizes}
    for contender in contenders:
        only = fixed[contender.name]
        if only is not None and sizes != [only]:
            console.print(f"{contender.name}: made for batches of {only}, and measured with these only.")
        for size in sizes if only is None else [only]:
            races.setdefault(size, []).append(contender)
    races = {size: racing for size, racing in races.items() if racing}
    rows: Rows = []
    with progress_bar(progress_console(quiet=console.quiet)) as progress:
        task = progress.add_task("measuring", total=len(races) * turns)
        for size, racing in races.items():
            runs = {contender.name: runners[contender.name] for contender in racing}
            measured = race(runs, size, on_round=lambda: progress.advance(task))
            rows += [contender.facts() | asdict(measured[contender.name]) for contender in racing]
    return rows


def _over_floats(row: dict[str, Any], rows: Rows, time: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
    """How a row stands against the fastest float model at its batch size."""
    floats = [time(other) for other in rows if other["is_float"] and other["batch"] == row["batch"]]
    return {
        "is_best_float": row["is_float"] and time(row) == min(floats),
        "over_best_float": min(floats) / time(row) if floats else None,
    }


def _footprints(console: Console, contenders: list[Contender], rows: Rows, threads: int, with_memory: bool) -> Rows:
    """Bytes of each contender, memory at the largest batch it ran."""
    footprints: Rows = []
    with progress_console(quiet=console.quiet).status("measuring memory"):
        for contender in contenders:
            batch = max(
                row["batch"] for row in rows if (row["model"], row["engine"]) == (str(contender.path), contender.engine)
            )
            record = contender.facts() | {"batch": batch, "file_bytes": file_size(contender.path)}
            if with_memory:
                taken = memory(contender.path, contender.engine, threads, batch)
                record |= {"load_bytes": taken.load, "run_bytes": taken.run}
            footprints.append(record)
    return footprints


def _profile(
    console: Console, contender: Contender, executed: list[ProfiledLayer], batch: int, with_layers: bool, with_totals: bool
) -> dict[str, Any]:
    """What the engine says about one contender, shown and as a record."""
    int8, products = products_in_int8(executed)
    record = contender.facts() | {"batch": batch, "int8_products": int8, "products": products}
    title = f"{contender.name}, batch {batch}"
    if with_layers:
        gaps = findings(executed, contender.engine, contender.origin)
        show_layers(console, title, executed)
        show_findings(console, gaps, int8, products)
        record["layers"] = [_layer(layer, name) for layer, name in zip(executed, titles(executed).values(), strict=True)]
        record["findings"] = [asdict(finding) for finding in gaps]
    if with_totals:
        record["totals"] = totals(executed)
        show_totals(console, title, record["totals"])
    return record


def _layer(layer: ProfiledLayer, title: str) -> dict[str, Any]:
    plain = {key: value for key, value in vars(layer).items() if key not in ("given", "origins")}
    return {"title": title} | plain | {"reads": list(layer.reads), "ops": list(layer.ops)}
