"""``quaver demo``: the whole journey on data that ships with the package, in about a minute."""

import copy
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console

from quaver.analysis import analyze
from quaver.capture import capture
from quaver.cli.bench import run_bench
from quaver.cli.consoles import progress_console, results_console, table_of
from quaver.cli.report_files import fail_where_verify_failed, write_file, write_report
from quaver.cli.screen import Screen
from quaver.config.recipe import Phase, QuantPhase
from quaver.data import Loader, open_dataset
from quaver.deployment import write_tree
from quaver.engines import DEFAULT
from quaver.errors import ConfigError
from quaver.export import export
from quaver.measure.verify import verify
from quaver.models import MobileNetV1
from quaver.pipeline import convert, quant_aware
from quaver.program import Program
from quaver.program.storage import weights_file
from quaver.report import write_report as write_page
from quaver.training.classification import Classification
from quaver.training.job import Job
from quaver.training.listener import MetricsFile
from quaver.training.trainer import Trainer


def run_demo(out: Path, *, epochs: int, qat_epochs: int, batch_size: int, seed: int) -> None:
    """The journey, and its figures in ``out``."""
    console, beside = results_console(), progress_console()
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: this is a file. Name a folder, or one that does not exist yet.")
    torch.manual_seed(seed)
    batches = Loader(open_dataset("digits", "train"), batch_size, shuffle=True, seed=seed, drop_last=True)
    test = Loader(open_dataset("digits", "val"), 256, shuffle=False)
    model = MobileNetV1(num_classes=10, scale=0.5, small_images=True)
    example = (torch.zeros(1, *test.dataset.image_shape),)
    task = Classification()

    def top1(program: Program) -> float:
        return task.evaluate(program, test)["top1"]

    with TemporaryDirectory() as scratch, Screen(beside, lines=False) as screen:
        metrics = MetricsFile(Path(scratch) / "metrics.jsonl")

        def trained(title: str, program: Program, phase: Phase) -> Program:
            job = Job(
                name=title, program=program, task=task, phase=phase, batches=batches, seed=seed, listeners=(screen, metrics)
            )
            Trainer(job).run()
            return program

        fp32 = trained("float training", capture(model, example), Phase(num_epochs=epochs, lr=0.05, nesterov=True))
        fp32_top1 = top1(fp32)
        as_trained = copy.deepcopy(fp32)  # what follows trains the same weights on
        qat = trained("int8-aware training", quant_aware(fp32), QuantPhase(num_epochs=qat_epochs, nesterov=True))
        curves = metrics.path.read_bytes()
    frozen, int8 = convert(qat, save_int8=True)
    report: dict[str, Any] = {
        "fp32_top1": fp32_top1,
        "qat_top1": top1(qat),
        "frozen_top1": top1(frozen),
        "int8_top1": top1(int8),
        "fp32_bytes": sum(tensor.nbytes for tensor in model.state_dict().values()),
        "int8_bytes": 0,
        "test_images": len(test.dataset),
        "quantized_ops": sum(op.quantized for op in int8.ops()),
        "float_ops": {op.name: op.reason for op in int8.ops() if not op.quantized},
    }
    with beside.status("writing float/, int8/ and mobile/, and opening them again"):
        write_tree(frozen, out)
        float_model = export(as_trained, out / "fp32" / f"model{DEFAULT.suffix}")
    report["int8_bytes"] = weights_file(out / "int8").stat().st_size
    with beside.status("looking at every layer"):
        analyze(qat, islice(batches.epoch(0), 8)).save(out / "analysis.json")
    with beside.status("running the engine"):
        report |= deployed(int8, out, float_model, test)
    write_report(out / "report.json", report)
    write_file(out / "metrics.jsonl", curves)
    write_page([out], out / "report.html")
    show(console, out, report, int8)
    fail_where_verify_failed(console, report)


def deployed(int8: Program, out: Path, float_model: Path, test: Loader) -> dict[str, Any]:
    """What the engine makes of the int8 model: accuracy, agreement with the simulation, and speed beside the float model."""
    artefact = DEFAULT.file_in(out)
    result = verify(int8, artefact, test.epoch(0))
    speed = run_bench(Console(quiet=True), [artefact], [float_model], sizes=[1], rounds=100, warmup=3, with_layers=True)
    write_report(out / "bench.json", speed)
    milliseconds = {"fp32_ms" if row["is_float"] else "int8_ms": row["median_ms"] for row in speed["latencies"]}
    return {
        "deployed_top1": result.accuracy_deployed,
        "agreement": result.agreement,
        "integers_equal": result.integers_equal,
        **({} if result.passed else {"verify_failures": result.failures}),
        "engine": result.engine,
        "cpu": result.cpu,
        **milliseconds,
        "speedup": milliseconds["fp32_ms"] / milliseconds["int8_ms"],
    }


def show(console: Console, out: Path, report: dict[str, Any], int8: Program) -> None:
    """The figures as a table."""
    title = f"MobileNetV1 x0.5 on {report['test_images']} handwritten digits it has not seen"
    table = table_of(title, "program", "|top-1", "|weights")
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
