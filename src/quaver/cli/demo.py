"""``quaver demo``: the whole journey on data that ships with the package, in about a minute."""

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from quaver.analysis import analyze
from quaver.capture import capture
from quaver.cli.bench import run_bench
from quaver.cli.figures import write_report
from quaver.data import load_digits
from quaver.deployment import write_tree
from quaver.errors import ConfigError, StorageError
from quaver.export import export
from quaver.files import write_atomically
from quaver.measure.verify import verify
from quaver.models import MobileNetV1
from quaver.pipeline import convert, quant_aware
from quaver.program import Program
from quaver.program.storage import WEIGHTS_PATTERN
from quaver.report import write_report as write_page
from quaver.training import evaluate, fit


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the programs.")] = Path("demo_out"),
    epochs: Annotated[int, typer.Option(help="Epochs of float training.", min=1)] = 6,
    qat_epochs: Annotated[int, typer.Option(help="Epochs of training with quantizers.", min=1)] = 2,
    batch_size: Annotated[int, typer.Option(help="Images per step.", min=1)] = 32,
    seed: Annotated[int, typer.Option(help="Seed for weights and batches.")] = 0,
) -> None:
    """Train a small MobileNetV1 on handwritten digits, quantize it, and compare float, simulated and int8."""
    console = Console()
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: this is a file. Name a folder, or one that does not exist yet.")
    torch.manual_seed(seed)
    training, test = load_digits()
    test_batches = DataLoader(test, 256)
    model = MobileNetV1(num_classes=10, scale=0.5, small_images=True)

    metrics = train_with_bar(console, "float training", model, training, batch_size, epochs, lr=0.05)
    fp32_top1 = evaluate(model, test_batches)
    qat = quant_aware(model, example_inputs=(test[0][0][None],))
    metrics += train_with_bar(console, "int8-aware training", qat, training, batch_size, qat_epochs, lr=0.005)
    frozen, int8 = convert(qat, save_int8=True)
    report: dict[str, Any] = {
        "fp32_top1": fp32_top1,
        "qat_top1": evaluate(qat, test_batches),
        "frozen_top1": evaluate(frozen, test_batches),
        "int8_top1": evaluate(int8, test_batches),
        "fp32_bytes": sum(tensor.nbytes for tensor in model.state_dict().values()),
        "int8_bytes": 0,
        "test_images": len(test),
        "quantized_ops": sum(op.quantized for op in int8.ops()),
        "float_ops": {op.name: op.reason for op in int8.ops() if not op.quantized},
    }
    with console.status("writing float/, int8/ and mobile/, and opening them again"):
        write_tree(frozen, out)
        float_model = export(capture(model, (test[0][0][None],)), out / "fp32" / "model.xml")
    report["int8_bytes"] = sum(file.stat().st_size for file in (out / "int8").glob(WEIGHTS_PATTERN))
    with console.status("looking at every layer"):
        analyze(qat, islice(DataLoader(training, 64), 8)).save(out / "analysis.json")
    with console.status("running the engine"):
        report |= deployed(int8, out, float_model, test_batches)
    write_report(out / "report.json", report)
    write_metrics(out / "metrics.jsonl", metrics)
    write_page([out], out / "report.html")
    show(console, out, report, int8)


def deployed(int8: Program, out: Path, float_model: Path, batches: DataLoader[Any]) -> dict[str, Any]:
    """What the engine makes of the int8 model: accuracy, agreement with the simulation, and speed beside the float model."""
    artefact = out / "int8" / "model.xml"
    result = verify(int8, artefact, batches)
    options: dict[str, Any] = {
        "sizes": [1],
        "rounds": 100,
        "warmup": 3,
        "wanted": [],
        "with_memory": False,
        "profile": False,
    }
    speed = run_bench(Console(quiet=True), [artefact], [float_model], with_layers=True, **options)
    write_report(out / "bench.json", speed)
    milliseconds = {"fp32_ms" if row["is_float"] else "int8_ms": row["median_ms"] for row in speed["latencies"]}
    return {
        "deployed_top1": result.accuracy_deployed,
        "agreement": result.agreement,
        "integers_equal": result.integers_equal,
        "engine": result.engine,
        "cpu": result.cpu,
        **milliseconds,
        "speedup": milliseconds["fp32_ms"] / milliseconds["int8_ms"],
    }


def train_with_bar(
    console: Console,
    title: str,
    model: nn.Module,
    data: TensorDataset,
    batch_size: int,
    epochs: int,
    lr: float,
) -> list[dict[str, Any]]:
    """`fit` with a progress bar that shows the loss and the time left; gives the loss of every step."""
    batches = DataLoader(data, batch_size, shuffle=True, drop_last=True)
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=epochs * len(batches), loss=float("nan"))
        metrics: list[dict[str, Any]] = []

        def on_step(loss: float, images: int) -> None:
            progress.update(task, advance=1, loss=loss)
            metrics.append({"phase": title, "step": len(metrics) + 1, "loss": loss})

        fit(model, batches, epochs=epochs, lr=lr, on_step=on_step)
    return metrics


def write_metrics(path: Path, metrics: list[dict[str, Any]]) -> None:
    """The curves of training, a record per line."""
    try:
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in metrics).encode())
    except OSError as error:
        raise StorageError(f"{path}: the metrics could not be written: {error}.") from error


def show(console: Console, out: Path, report: dict[str, Any], int8: Program) -> None:
    """The figures as a table."""
    table = Table(title=f"MobileNetV1 x0.5 on {report['test_images']} handwritten digits it has not seen")
    for column in ("program", "top-1", "weights"):
        table.add_column(column, justify="left" if column == "program" else "right")
    whole, small = report["fp32_bytes"], report["int8_bytes"]
    table.add_row("float model", f"{report['fp32_top1']:.2%}", f"{whole / 1024:,.0f} KiB")
    table.add_row("int8, simulated while training", f"{report['qat_top1']:.2%}", "")
    table.add_row("int8, integers stored as float32", f"{report['frozen_top1']:.2%}", "")
    table.add_row("int8", f"{report['int8_top1']:.2%}", f"{small / 1024:,.0f} KiB ({small / whole:.0%})")
    table.add_row(f"int8, run by {report['engine']}", f"{report['deployed_top1']:.2%}", "")
    console.print(table)
    console.print(
        f"The engine agrees with the simulation on {report['agreement']:.2%} of the images; one image takes "
        f"{report['int8_ms']:.2f} ms in int8 and {report['fp32_ms']:.2f} ms in float on one thread: "
        f"{report['speedup']:.1f} times as fast."
    )
    convolutions = [op for op in int8.ops() if "conv" in op.type or op.type == "mul"]
    console.print(
        f"{sum(op.quantized for op in convolutions)} of {len(convolutions)} convolutions and linear layers compute on "
        f"integers. Programs and report.json are in {out}/; read one with quaver.load({str(out / 'int8')!r}). "
        f"{out / 'report.html'} shows all of it: open it in a browser."
    )
