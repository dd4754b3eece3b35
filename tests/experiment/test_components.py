"""A recipe's words as things: what each phase's task is, and how many steps an epoch has."""

import torch

from quaver.config.load import load_recipe
from quaver.experiment.components import build_components
from quaver.training.ranks import Ranks


def components(**flags):
    words = {"image_shape": "3,8,8", "use_gpu": "false"} | flags
    return build_components(load_recipe(None, words, "quantize"), Ranks())


def test_labels_are_smoothed_in_the_phase_that_asks_for_it():
    made = components(label_smoothing="0.5")
    logits, labels = 3 * torch.eye(4), torch.arange(4)

    smooth, plain = (made.task_for(phase).loss(logits, labels) for phase in (made.recipe.quantize, made.recipe.train))

    expected = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.5)
    assert smooth == expected > plain


def test_an_epoch_has_the_steps_that_its_images_make_or_those_that_are_told():
    assert components(batch_size="100").steps_per_epoch == 14  # of 1438 images, the last 38 are left out
    assert components(batch_size="100", total_images="50001").steps_per_epoch == 501
