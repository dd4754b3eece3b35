"""How far below float int8 may be: the first way that keeps to it is taken, and each is told of."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import quaver
from quaver.config.recipe import QuantPhase, Recipe
from quaver.data import Loader
from quaver.experiment import target_drop
from quaver.experiment.components import Components, build_components
from quaver.experiment.start import start
from quaver.experiment.target_drop import TargetDrop
from quaver.experiment.training_run import TrainingRun
from quaver.training.classification import Classification
from quaver.training.ranks import Ranks
from quaver.training.trainer import Trainer
from tiny import assert_same_state

NEVER_READ = None  # the test set: nothing is chosen by it
NO_LATENCY = lambda self, prepared: ""  # noqa: E731  # exports are tested elsewhere


class Labelled:
    """Images whose labels are what a network says of them: its accuracy is 1."""

    def __init__(self, model, count):
        self.images = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(count))
        with torch.no_grad():
            self.labels = model(self.images).argmax(1)

    def __len__(self):
        return len(self.images)

    def batch(self, indices):
        return self.images[indices], self.labels[indices]

    def set_epoch(self, epoch):
        pass


def network():
    torch.manual_seed(0)
    layers = [layer for _ in range(7) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
    net = nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.Flatten(), nn.Linear(288, 10)).eval()
    for weight in (p for p in net.parameters() if p.dim() > 1):
        nn.init.kaiming_normal_(weight)  # otherwise what an image is fades from layer to layer
    return net


@pytest.fixture(scope="module")
def model():
    return network()


def target(model, **phase):
    recipe = Recipe(batch_size=32, quantize=QuantPhase(num_epochs=100, **phase))
    train, held_out = (Loader(Labelled(model, count), 32, shuffle=False) for count in (64, 128))
    shared = {"classes": 10, "image_shape": (3, 8, 8), "held_out": held_out}
    components = Components(recipe, Ranks(), torch.device("cpu"), "made up", train, NEVER_READ, Classification(), **shared)
    said = []
    return TargetDrop(components, quaver.capture(model, (torch.zeros(1, 3, 8, 8),)), said.append), said


@pytest.fixture
def _no_latency(monkeypatch):
    monkeypatch.setattr(target_drop._LatencyBesideFloat, "words", NO_LATENCY)


@pytest.mark.usefixtures("_no_latency")
def test_calibration_is_enough_where_it_loses_little(model):
    wanted, said = target(model, target_drop=5.0)

    attempt = wanted.without_training()

    assert attempt.way == "calibrated"
    assert wanted.is_met(attempt.figures)
    assert len(said) == 1
    assert "(the target is met)" in said[0]


@pytest.mark.usefixtures("_no_latency")
def test_a_layer_that_loses_everything_stays_float(model):
    wanted, said = target(model, target_drop=10.0, layer_bits={"^7$": 2})

    attempt = wanted.without_training()

    assert attempt.way == "calibrated, 7 in float"
    assert wanted.is_met(attempt.figures)
    assert "wanted: at most 10" in said[0]
    floats = [op.scope for op in attempt.program.ops() if op.type == "conv2d" and not op.quantized]
    assert floats == ["7"]


@pytest.mark.usefixtures("_no_latency")
def test_where_few_layers_in_float_are_not_enough_training_begins_with_all_in_int8(model):
    wanted, said = target(model, target_drop=0.0, weight_bits=2)

    attempt = wanted.without_training()

    assert attempt.way == "calibrated"
    assert not wanted.is_met(attempt.figures)
    assert said[-1] == "no 2 of 9 layers in float would be enough."


@pytest.mark.usefixtures("_no_latency")
def test_layers_are_not_tried_where_training_is_the_shorter_way(model):
    wanted, said = target(model, target_drop=0.0, weight_bits=2)
    short = replace(wanted.components.recipe, quantize=replace(wanted.components.recipe.quantize, num_epochs=1))
    wanted = replace(wanted, components=replace(wanted.components, recipe=short))

    wanted.without_training()

    assert len(said) == 1


@pytest.mark.slow
def test_latency_is_measured_on_the_engine_beside_the_float_model(model):
    wanted, said = target(model, target_drop=5.0)

    wanted.without_training()

    assert " ms an image on openvino, float " in said[0]


def test_nothing_reached_is_no_target_met(model):
    wanted, _ = target(model, target_drop=100.0)

    assert not wanted.is_met({})


WORDS = {
    "model": "tiny:net",
    "image_shape": "3,8,8",
    "batch_size": "128",
    "use_gpu": "false",
    "float_epochs": "1",
    "num_epochs": "2",
    "weight_bits": "2",
    "target_drop": "0",
}


def quantized(folder, **words):
    """The result of a run in a folder."""
    begun = start("quantize", None, WORDS | {"model_save_dir": str(folder)} | words, "", lambda words: None)
    return TrainingRun(begun, build_components(begun.recipe, Ranks())).to_int8()


def gone_on_with(folder):
    begun = start("quantize", None, {"model": WORDS["model"]}, str(folder), lambda words: None)
    return TrainingRun(begun, build_components(begun.recipe, Ranks())).to_int8()


@pytest.mark.slow
@pytest.mark.usefixtures("_no_latency")
def test_a_run_that_was_killed_in_training_goes_on_to_the_same_end(tmp_path, monkeypatch):
    wanted = quantized(tmp_path / "whole")
    saved = Trainer._save

    def killed(self):
        saved(self)
        if self.job.name == "quantize" and self.state.at.epoch == 1:
            raise InterruptedError

    with monkeypatch.context() as until_then:
        until_then.setattr(Trainer, "_save", killed)
        with pytest.raises(InterruptedError):
            quantized(tmp_path / "killed")

    got = gone_on_with(tmp_path / "killed")

    for before, after in zip(wanted, got, strict=True):
        assert (before.figures, before.choice) == (after.figures, after.choice)
        assert_same_state(before.program.state_dict(), after.program.state_dict())


@pytest.mark.slow
@pytest.mark.usefixtures("_no_latency")
def test_a_run_that_was_killed_before_training_calibrates_again(tmp_path, monkeypatch):
    calibrated = target_drop.calibrated

    def killed(*args, **options):
        calibrated(*args, **options)
        raise InterruptedError

    wanted = quantized(tmp_path / "whole", target_drop="100", weight_bits="8")
    with monkeypatch.context() as until_then:
        until_then.setattr(target_drop, "calibrated", killed)
        with pytest.raises(InterruptedError):
            quantized(tmp_path / "killed", target_drop="100", weight_bits="8")

    got = gone_on_with(tmp_path / "killed")

    assert wanted[1].choice["way"] == "calibrated"
    assert (wanted[1].figures, wanted[1].choice) == (got[1].figures, got[1].choice)


@pytest.mark.slow
@pytest.mark.usefixtures("_no_latency")
def test_the_test_set_is_looked_at_when_nothing_is_left_to_choose(tmp_path, monkeypatch):
    evaluate, judged = Classification.evaluate, []

    def noted(self, model, loader):
        figures = evaluate(self, model, loader)
        judged.append(figures["images"])
        return figures

    monkeypatch.setattr(Classification, "evaluate", noted)

    before, after = quantized(tmp_path, num_epochs="1")

    assert judged == [359, 143, 143, 143, 359]  # float; float, calibrated and trained, to choose; the result
    assert (before.figures["images"], after.figures["images"]) == (359, 359)
    assert (after.choice["way"], after.choice["held_out_images"]) == ("trained", 143)


def test_training_to_a_target_is_such_that_any_epoch_may_be_the_last_unless_flags_say_otherwise(tmp_path):
    def phase(**words):
        begun = start("quantize", None, WORDS | {"model_save_dir": str(tmp_path)} | words, "", lambda words: None)
        return begun.recipe.quantize

    chosen, without = phase(ema="0.5"), phase(target_drop="-1")

    assert (chosen.lr_strategy, chosen.ema, chosen.reestimate_bn, chosen.distill) == ("constant", 0.5, 100, 0.7)
    assert (without.lr_strategy, without.ema, without.distill) == ("cosine_decay", 0.0, 0.0)
