"""What a run works with: a device, the other processes, data, a task, a model."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from quaver.capture import capture
from quaver.config.recipe import NO_TARGET, Phase, Recipe
from quaver.data import ImageData, Loader, open_dataset
from quaver.data.held_out import held_out
from quaver.detection import Detection
from quaver.detection.anchors import anchors_of, published_anchors
from quaver.engines import ENGINES, Engine
from quaver.errors import ConfigError
from quaver.experiment.recipe_checks import dataset_name
from quaver.image_input import ImageInput
from quaver.models import build
from quaver.program import Program
from quaver.training.classification import Classification
from quaver.training.ranks import Ranks
from quaver.training.task import Task


@dataclass(frozen=True)
class Components:
    """What the recipe names, built: device, data, task and model.

    ``held_out``: training images that nothing is trained or calibrated with, to choose by; there are some where a target is
    given.
    """

    recipe: Recipe
    ranks: Ranks
    device: torch.device
    dataset: str
    train: Loader
    test: Loader
    task: Classification | Detection
    classes: int
    image_shape: tuple[int, int, int]
    held_out: Loader | None = None

    @property
    def example(self) -> tuple[Tensor]:
        """Inputs to capture a model with."""
        return (torch.zeros(1, *self.image_shape),)

    def captured(self, model: nn.Module) -> Program:
        """The model as a program that says how its images are prepared."""
        program = capture(model, self.example)
        program.preprocessing = self.train.dataset.preprocessing
        return program

    @property
    def steps_per_epoch(self) -> int:
        """As the learning rate counts them."""
        return -(-self.recipe.total_images // self.recipe.batch_size) or len(self.train)

    @property
    def engine(self) -> Engine:
        """The engine that the model is trained for; where that one is not installed, one that is."""
        wanted = ENGINES[self.recipe.quantize.target]
        return next((engine for engine in (wanted, *ENGINES.values()) if engine.is_installed), wanted)

    def task_for(self, phase: Phase) -> Task:
        """The task with a phase's own options."""
        return (
            replace(self.task, label_smoothing=phase.label_smoothing) if isinstance(self.task, Classification) else self.task
        )

    @property
    def image(self) -> ImageInput | None:
        """How the files of a run take a camera's bytes; None where they take tensors."""
        phase, preprocessing = self.recipe.quantize, self.train.dataset.preprocessing
        if not phase.image_layout:
            return None
        if preprocessing is None:
            raise ConfigError(
                f"image_layout={phase.image_layout!r}: {self.dataset} does not say the mean and std of its images. Leave it "
                "out, and give them to quaver export (--image_mean, --image_std)."
            )
        return preprocessing.image(layout=phase.image_layout, color=phase.image_color)

    def alone(self) -> "Components":
        """The same for this process alone: the others may have left."""
        test = Loader(self.test.dataset, self.recipe.batch_size, shuffle=False, workers=self.recipe.workers)
        task = Classification() if isinstance(self.task, Classification) else self.task
        return replace(self, ranks=Ranks(), test=test, task=task)

    def model(self) -> nn.Module:
        """The model with fresh weights, the same for the same seed."""
        torch.manual_seed(self.recipe.seed)
        options = self.recipe.model_options
        return build(self.recipe.model, num_classes=self.classes, image_size=self.image_shape[1], **options)


def build_components(recipe: Recipe, ranks: Ranks) -> Components:
    """Choose the device, open the data."""
    accelerator = wants_accelerator(recipe)
    device = torch.device("cuda", torch.cuda.current_device()) if accelerator else torch.device("cpu")
    name = dataset_name(recipe)
    sets = {
        split: open_dataset(
            name,
            split,
            data_dir=recipe.data_dir or None,
            image_size=recipe.image_size,
            augment=split == "train",
            seed=recipe.seed,
        )
        for split in ("train", "val")
    }
    train, val, choice = sets["train"], sets["val"], None
    if recipe.image_shape and train.image_shape[0] != int(recipe.image_shape.split(",")[0]):
        raise ConfigError(f"image_shape={recipe.image_shape!r}: the images of {name} have {train.image_shape[0]} channels.")
    if recipe.class_dim and recipe.class_dim < train.classes:
        raise ConfigError(f"class_dim={recipe.class_dim}: {name} has {train.classes} classes.")
    if recipe.quantize.target_drop != NO_TARGET:
        train, choice = held_out(train, recipe.seed)
    shared: dict[str, Any] = {"workers": recipe.workers, "rank": ranks.rank, "world": ranks.world, "pin_memory": accelerator}
    return Components(
        recipe=recipe,
        ranks=ranks,
        device=device,
        dataset=name,
        train=Loader(train, recipe.batch_size, shuffle=True, drop_last=True, seed=recipe.seed, **shared),
        test=Loader(val, recipe.batch_size, shuffle=False, **shared),
        task=_detection(recipe, train) if name == "voc" else Classification(ranks=ranks),
        classes=recipe.class_dim or train.classes,
        image_shape=train.image_shape,
        held_out=None if choice is None else Loader(choice, recipe.batch_size, shuffle=False, **shared),
    )


def _detection(recipe: Recipe, train: ImageData) -> Detection:
    size, given = train.image_shape[1], recipe.anchors
    return Detection(train.classes, size, anchors_of(given) if given else published_anchors(size))


def wants_accelerator(recipe: Recipe) -> bool:
    """Whether to train on an accelerator; an error where one is asked for and there is none."""
    there = torch.cuda.is_available()
    if recipe.use_gpu == "true" and not there:
        raise ConfigError("use_gpu=true: torch finds no accelerator here. Leave the flag out, or give --use_gpu false.")
    return there and recipe.use_gpu != "false"
