"""What the modules of a model were set to when it was captured, and what a graph cannot follow of them."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import quaver
from quaver.errors import StageError


class DropPath(nn.Module):
    """Stochastic depth, as others write it."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        return x * x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(1 - self.rate) / (1 - self.rate)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.drop_path = DropPath(0.25)

    def forward(self, x):
        return x + self.drop_path(self.norm(self.conv(x)))


class Net(nn.Module):
    """A module that differs by mode, a block that calls F.dropout, and a head that is there in training only."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.dropping = nn.Sequential(nn.Identity())
        self.dropping.forward = lambda x: F.dropout(x, 0.5, self.dropping.training)
        self.auxiliary = nn.Linear(3, 2)

    def forward(self, x):
        x = self.dropping(self.block(x)).mean((2, 3))
        return (x, self.auxiliary(x)) if self.training else x


@pytest.fixture(scope="module")
def captured():
    return quaver.capture(Net(), (torch.zeros(2, 3, 8, 8),))


@pytest.fixture
def program(captured):
    return captured.clone().train()


def test_a_batch_norm_that_was_frozen_before_capture_is_frozen_in_the_program(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).train()
    model[1].eval()

    for program in (quaver.capture(model, (images,)), quaver.quant_aware(model, example_inputs=(images,))):
        program(images)

    assert [int(model[place].num_batches_tracked) for place in (1, 3)] == [0, 2]
    assert not model[1].training
    assert model[3].training


def test_a_frozen_batch_norm_has_the_gradients_of_the_models_own(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    model(images + 1)
    model[1].eval()
    found = []

    for one in (model, quaver.capture(model, (images,))):
        model.zero_grad()
        output = one(images)
        output.square().sum().backward()
        found.append([output, *(parameter.grad.clone() for parameter in model.parameters())])

    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_a_cumulative_average_is_captured_and_stays_one(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=None))
    program = quaver.capture(model, (images,)).train()
    means = [model[0](batch).mean((0, 2, 3)) for batch in (images, images + 3)]

    for batch in (images, images + 3):
        program(batch)

    assert model[1].momentum is None
    torch.testing.assert_close(model[1].running_mean, torch.stack(means).mean(0))


def test_a_model_in_evaluation_gives_a_program_that_evaluates_all_through(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    model.append(nn.Dropout(0.5))  # a new head, which trains

    program = quaver.capture(model, (images,))

    assert torch.equal(program(images), program(images))


def test_a_module_that_differs_by_mode_is_refused_in_another_mode_than_the_program(program, images):
    program(images)
    program.block.drop_path.eval()
    with pytest.raises(
        StageError, match=r"'block\.drop_path' \(DropPath\) is in evaluation mode, and the program in training"
    ):
        program(images)
    program.train().dropping.eval()

    with pytest.raises(StageError, match=r"'dropping' .* is in evaluation mode"):
        program(images)


def test_its_rate_is_refused_when_it_changes(program, images):
    program.block.drop_path.rate = 0.5

    with pytest.raises(StageError, match=r"'block\.drop_path\.rate' is 0\.5, and was 0\.25 when .* capture that"):
        program(images)
    program.block.drop_path.rate = 0.25  # it is shared by nobody


class Settings(nn.Module):
    """Modules that compute by what they are set to, and a scale of its own."""

    def __init__(self):
        super().__init__()
        self.scale, self.epoch, self.stage = 1.0, 0, 4
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.InstanceNorm2d(4)
        self.act = nn.LeakyReLU()
        self.pool = nn.MaxPool2d(2)
        self.drop_path = DropPath(0)
        self.rows = nn.LayerNorm(4)
        self.unused = nn.AvgPool2d(2)

    def forward(self, x):
        x = self.drop_path(self.pool(self.act(self.norm(self.conv(x)))))
        return self.scaled(x) + (self.stage - 4)

    def scaled(self, x):
        return self.rows(x.flatten(2).mT) * self.scale


@pytest.fixture(scope="module")
def settings():
    return quaver.capture(Settings(), (torch.zeros(2, 3, 8, 8),))


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("conv", "stride", (2, 2)),
        ("conv", "groups", 3),
        ("norm", "track_running_stats", True),
        ("act", "negative_slope", 0.2),
        ("act", "negative_slope", torch.ones(2)),
        ("pool", "kernel_size", 4),
        ("drop_path", "rate", 0.3),  # it gave back what it was given, and has no op
        ("rows", "eps", 0.1),
        ("", "scale", 2.0),  # the model's own, read in a method
    ],
)
def test_a_setting_that_the_graph_has_is_refused_when_it_changes(settings, images, module, name, value):
    program = settings.clone().train()
    before = program(images)
    setattr(program.get_submodule(module), name, value)

    place = f"'{module}.{name}'" if module else f"'{name}'"
    for use in (lambda: program(images), program.eval, program.clone):
        with pytest.raises(StageError, match=re.escape(place) + r" is .*, and was .* capture that"):
            use()
    setattr(program.get_submodule(module), name, getattr(settings.get_submodule(module), name))
    assert torch.equal(program.train()(images), before)


def test_settings_that_change_nothing_may_change(settings, images):
    program = settings.clone().train()
    before = program(images)
    program.epoch = 7  # no forward reads it
    program.conv.padding = (1, 1)  # as it was
    program.act.inplace = True
    program.unused.kernel_size = 3

    assert torch.equal(program(images), before)


def test_modules_whose_mode_does_not_matter_may_be_in_any(program, images):
    for name in ("block.conv", "block.norm", "auxiliary"):
        program.get_submodule(name).eval()

    assert len(program(images)) == 2


def test_a_module_of_another_class_in_the_place_of_one_is_refused(images):
    program = quaver.capture(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()), (images,))
    setattr(program, "0", nn.Conv2d(3, 3, 1))
    assert torch.equal(program(images), program.get_submodule("0")(images).relu())
    setattr(program, "1", nn.GELU())

    with pytest.raises(StageError, match=r"'1' is a GELU now, and was a ReLU when .* capture that"):
        program.train()
    with pytest.raises(StageError, match="'1' is a GELU now"):
        program.clone()(images)


def test_pruning_a_module_of_a_program_is_refused(images):
    program = quaver.capture(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()), (images,))
    program(images)
    prune.l1_unstructured(program.get_submodule("0"), "weight", 0.5)

    with pytest.raises(StageError, match=r"'0\.weight' is no parameter or buffer of the program any more"):
        program(images)


def test_a_batch_norm_under_two_names_follows_its_module(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.BatchNorm2d(3)
            self.other = self.one

        def forward(self, x):
            return self.other(x)

    program = quaver.capture(Twice(), (images,)).train()
    program.other.eval()

    program(images)

    assert int(program.one.num_batches_tracked) == 0
    assert len(quaver.feature_extractor(program, ["one"])(images)[1]) == 1
