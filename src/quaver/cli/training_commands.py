"""``quaver demo``, ``train`` and ``quantize``: flags and help, which need no torch. What they do is beside it."""

from pathlib import Path
from typing import Annotated

import typer

from quaver.cli.flags import with_recipe_flags


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the programs.")] = Path("demo_out"),
    epochs: Annotated[int, typer.Option(help="Epochs of float training.", min=1)] = 6,
    qat_epochs: Annotated[int, typer.Option(help="Epochs of training with quantizers.", min=1)] = 2,
    batch_size: Annotated[int, typer.Option(help="Images per step.", min=1)] = 32,
    seed: Annotated[int, typer.Option(help="Seed for weights and batches.")] = 0,
) -> None:
    """Train a small MobileNetV1 on handwritten digits, quantize it, and compare float, simulated and int8."""
    from quaver.cli.demo import run_demo

    run_demo(out, epochs=epochs, qat_epochs=qat_epochs, batch_size=batch_size, seed=seed)


@with_recipe_flags("train")
def train(flags: dict[str, str]) -> None:
    """Train a float model. Writes checkpoints, fp32.safetensors, fp32/ (for engines) and report.json.

    Flags may be written with - in place of _.
    """
    from quaver.cli.train import run_train

    run_train(flags)


@with_recipe_flags("quantize")
def quantize(flags: dict[str, str]) -> None:
    """Train a model with quantizers and convert it. Writes checkpoints, float/, int8/, mobile/, fp32/ and report.json.

    Starts from --pretrained_fp32_model. Without it, a float model is trained first (--float_epochs, --float_lr) and
    kept as fp32.safetensors; --float_epochs 0 quantizes from random weights. With --analysis it looks at the float model,
    writes what it found, and ends; with --use_pact true it then starts from that.

    fp32/ is the float model, for engines. float/ is the int8 model, its integers stored as float32.

    Flags may be written with - in place of _.
    """
    from quaver.cli.train import run_quantize

    run_quantize(flags)
