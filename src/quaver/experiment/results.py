"""The results of a run: artefacts, and the figures of the report. No times: equal runs leave equal files."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quaver.config.recipe import NO_TARGET
from quaver.data import Loader
from quaver.deployment import write_float_model, write_tree
from quaver.detection import Detection
from quaver.engines import Engine
from quaver.errors import EngineError
from quaver.experiment.components import Components
from quaver.experiment.run_folder import RunFolder
from quaver.experiment.target_drop import points_lost
from quaver.experiment.training_run import Trained
from quaver.export import form_for
from quaver.image_input import ImageInput
from quaver.measure.verify import verify
from quaver.models import load_weights
from quaver.pipeline import convert
from quaver.program import Program
from quaver.program.storage import weights_file
from quaver.runtime import load


def float_report(components: Components, folder: RunFolder, trained: Trained) -> dict[str, Any]:
    """Write ``fp32/``, and give the figures of a float run."""
    figures = _named("fp32", trained.figures) | {"fp32_bytes": _bytes(trained), "rollbacks": trained.rollbacks}
    return _about(components) | figures | _left_out([*_float_model(components, folder)])


def int8_report(components: Components, folder: RunFolder, before: Trained, after: Trained) -> dict[str, Any]:
    """Write ``float/``, ``int8/``, ``mobile/`` and ``fp32/``, run the engine, and give the figures of all."""
    frozen, int8 = convert(after.program.to("cpu"), save_int8=True)
    left_out: list[str] = []
    write_tree(frozen, folder.path, image=components.image, left_out=left_out.append)
    left_out += _float_model(components, folder)
    ops = int8.ops()
    report = _about(components) | _named("fp32", before.figures) | _named("qat", after.figures)
    engine = components.engine
    # sums of integers are the same everywhere, and sooner on an accelerator; a copy, for the engine's file is written here
    simulated = copy.deepcopy(form_for(int8, engine)).to(components.device)
    report |= _named("int8", components.alone().task.evaluate(simulated, components.alone().test))
    report |= {
        "fp32_bytes": _bytes(before),
        "int8_bytes": weights_file(folder.path / "int8").stat().st_size,
        "quantized_ops": sum(op.quantized for op in ops),
        "float_ops": {op.name: op.reason for op in ops if not op.quantized},
        "rollbacks": before.rollbacks + after.rollbacks,
        **_target(components, before, after),
        **_left_out(left_out),
    }
    return report | (_deployed(components.alone(), folder, int8, engine) if components.recipe.verify_images else {})


def _float_model(components: Components, folder: RunFolder) -> list[str]:
    """Write the float model of a run from the weights it left; what keeps it from being written, in words."""
    model, left_out = components.model(), list[str]()
    load_weights(model, folder.fp32)
    try:
        write_float_model(components.captured(model), folder.path, components.engine, left_out=left_out.append)
    except EngineError as error:  # what was trained is not lost for want of something to compare it with
        return [f"fp32/ is left out: {error}"]
    return left_out


def _target(components: Components, before: Trained, after: Trained) -> dict[str, Any]:
    """Whether what was wanted was reached, and how."""
    wanted = components.recipe.quantize.target_drop
    if wanted == NO_TARGET:
        return {}
    lost = points_lost(components, before.figures, after.figures)
    return {"target_drop": wanted, "points_lost": lost, "target_met": lost <= wanted, **after.choice}


def _left_out(message: list[str]) -> dict[str, list[str]]:
    return {"left_out": message} if message else {}


def _deployed(components: Components, folder: RunFolder, int8: Program, engine: Engine) -> dict[str, Any]:
    """What the engine makes of the int8 model, and whether it is what the simulation makes of it."""
    artefact = engine.file_in(folder.path)
    some = _Some(components.test, components.recipe.verify_images, components.image)
    task = "detection" if isinstance(components.task, Detection) else "classification"
    result = verify(int8, artefact, (images for images, _ in some), task=task)
    return _named("deployed", components.task.evaluate(load(artefact), some)) | {
        "agreement": result.agreement,
        "agreement_unit": result.agreement_unit,
        "integers_equal": result.integers_equal,
        "verified_images": result.images,
        **({} if result.passed else {"verify_failures": result.failures}),
        "engine": result.engine,
        "engine_folder": engine.folder,
        "cpu": result.cpu,
    }


def _about(components: Components) -> dict[str, Any]:
    recipe, task = components.recipe, components.task
    boxes = {"anchors": [list(box) for level in task.anchors for box in level]} if isinstance(task, Detection) else {}
    return {
        "model": recipe.model,
        "dataset": components.dataset,
        "image_shape": list(components.image_shape),
        "classes": components.classes,
        "test_images": len(components.test.dataset),
        "seed": recipe.seed,
        **boxes,  # without them nobody can read a detector's maps
    }


def _named(prefix: str, figures: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in figures.items() if name != "images"}


def _bytes(trained: Trained) -> int:
    return sum(tensor.nbytes for name, tensor in trained.program.state_dict().items())


@dataclass(frozen=True)
class _Some:
    """The first batches of a loader, up to a number of images; where files take bytes, the bytes that are nearest."""

    loader: Loader
    images: int
    taken: ImageInput | None

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        return self.epoch(0)

    def __len__(self) -> int:
        return -(-min(self.images, len(self.loader.dataset)) // self.loader.batch_size)

    def epoch(self, k: int, start: int = 0) -> Iterator[tuple[Tensor, Any]]:
        left = self.images
        for images, targets in self.loader.epoch(k, start):
            if left <= 0:
                return
            given = images[:left]
            if self.taken is not None:
                given = torch.from_numpy(self.taken.images_of(given.numpy(), nearest=True))
            yield given, targets[:left]
            left -= len(images)
