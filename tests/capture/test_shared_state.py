"""A program and its model are two ways to reach one set of tensors, and capture leaves the model as it was."""

import copy

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import CaptureError, QuaverWarning


def test_state_dict_has_the_names_and_the_order_of_the_model(net, images):
    program = quaver.capture(net, (images,))

    assert list(program.state_dict()) == list(net.state_dict())


def test_parameters_and_buffers_are_the_very_objects_of_the_model(net, images):
    program = quaver.capture(net, (images,))

    of_program = [*program.named_parameters(), *program.named_buffers()]
    of_model = [*net.named_parameters(), *net.named_buffers()]
    assert [(name, id(tensor)) for name, tensor in of_program] == [(name, id(tensor)) for name, tensor in of_model]


def test_non_persistent_buffers_stay_out_of_the_state_dict(images):
    model = nn.Conv2d(3, 3, 1)
    model.register_buffer("shift", torch.ones(1), persistent=False)

    program = quaver.capture(model, (images,))

    assert sorted(program.state_dict()) == ["bias", "weight"]
    assert dict(program.named_buffers())["shift"] is model.shift


def test_moving_the_program_moves_the_model(net, images):
    program = quaver.capture(net, (images,))

    program.to(torch.float64)

    assert {tensor.dtype for tensor in net.parameters()} == {torch.float64}
    assert net.stem[1].running_mean.dtype is torch.float64
    assert torch.equal(program.eval()(images.double()), net.eval()(images.double()))


def test_moving_the_model_moves_the_program(net, images):
    program = quaver.capture(net, (images,))

    net.to(torch.float64)

    assert {tensor.dtype for tensor in program.parameters()} == {torch.float64}
    assert torch.equal(program.eval()(images.double()), net.eval()(images.double()))


def test_top_level_tensors_move_too(images):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((1,), 3.0))
            self.register_buffer("shift", torch.full((1,), 0.5))

        def forward(self, x):
            return x * self.scale + self.shift

    model = Scaled()
    program = quaver.capture(model, (images,))

    model.double()

    assert program(images.double()).dtype is torch.float64
    assert program.scale is model.scale
    assert program.shift is model.shift


@pytest.mark.parametrize("trained", ["program", "model"])
def test_an_optimizer_step_on_one_is_seen_by_the_other(net, images, trained):
    program = quaver.capture(net, (images,))
    before = program.eval()(images)
    one = {"program": program, "model": net}[trained].train()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)

    one(images).square().mean().backward()
    optimizer.step()

    after = program.eval()(images)
    assert not torch.equal(after, before)
    assert torch.equal(after, net.eval()(images))


def test_running_statistics_of_a_training_step_are_seen_by_the_model(net, images):
    program = quaver.capture(net, (images,))
    mean, count = net.block.norm.running_mean.clone(), net.block.norm.num_batches_tracked.item()

    program.train()(images)

    assert not torch.equal(net.block.norm.running_mean, mean)
    assert net.block.norm.num_batches_tracked.item() == count + 1


def test_a_state_dict_loaded_into_the_model_is_seen_by_the_program(net, images):
    program = quaver.capture(net, (images,))
    other = {
        name: torch.rand_like(value) if value.is_floating_point() else value for name, value in net.state_dict().items()
    }

    net.load_state_dict(other)

    assert all(torch.equal(value, other[name]) for name, value in program.state_dict().items())
    assert torch.equal(program.eval()(images), net.eval()(images))


class Writing(nn.Module):
    """Writes into its buffer, then multiplies by it."""

    def __init__(self, write):
        super().__init__()
        self.register_buffer("state", torch.ones(2))
        self.write = write

    def forward(self, x):
        self.write(self, x)
        return x * self.state.sum()


def once(self, x):
    self.state += 1


def twice(self, x):
    self.state.add_(1)
    self.state.mul_(2)


def in_a_chain(self, x):
    self.state.mul_(0.9).add_(x.mean(), alpha=0.1)


def in_a_part(self, x):
    self.state[0].add_(1)


def by_copy(self, x):
    self.state.copy_(self.state * 0.5)


def by_assignment(self, x):
    self.state = self.state + 1


@pytest.mark.parametrize(
    "write", [once, twice, in_a_chain, in_a_part, by_copy, by_assignment], ids=lambda write: write.__name__
)
def test_a_buffer_that_the_forward_writes_is_written_by_the_program(write, images):
    model = Writing(write)
    program = quaver.capture(copy.deepcopy(model), (images,))

    outputs = [(program(images), model(images)) for _ in range(3)]

    assert torch.equal(program.state, model.state)
    assert all(torch.equal(given, expected) for given, expected in outputs)


def test_capture_changes_neither_tensors_nor_gradients_nor_the_random_state(net, images):
    net(images).sum().backward()
    state = copy.deepcopy(net.state_dict())
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    random = torch.get_rng_state()

    quaver.capture(net, (images,))

    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert all(torch.equal(old, new.grad) for old, new in zip(gradients, net.parameters(), strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_every_submodule_keeps_its_mode(net, images, training):
    net.train(training)
    net.block.norm.train(not training)
    modes = [module.training for module in net.modules()]

    program = quaver.capture(net, (images,))

    assert [module.training for module in net.modules()] == modes
    assert program.training is training


@pytest.mark.parametrize("training", [True, False])
def test_every_submodule_keeps_its_mode_when_capture_fails(net, training):
    net.train(training)
    net.block.norm.train(not training)
    modes = [module.training for module in net.modules()]

    with pytest.raises(CaptureError):
        quaver.capture(net, (torch.zeros(2, 4, 8, 8),))

    assert [module.training for module in net.modules()] == modes


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_switching_the_program_leaves_the_modes_of_the_model_alone(net, images, mode):
    net.train(mode == "eval")
    program = quaver.capture(net, (images,))

    getattr(program, mode)()

    assert {module.training for module in net.modules()} == {mode == "eval"}


def test_frozen_parameters_stay_frozen(net, images):
    net.stem.requires_grad_(False)
    program = quaver.capture(net, (images,))

    program.train()(images).sum().backward()

    assert net.stem[0].weight.grad is None
    assert net.head.weight.grad is not None


@pytest.mark.parametrize("part", [False, True])
def test_a_compiled_model_or_part_of_one_is_captured_and_keeps_its_modules(net, images, part):
    whole = torch.compile(net, backend="eager")
    if part:
        net.block = torch.compile(net.block, backend="eager")
        whole = net
    names, modules = list(net.state_dict()), list(net.modules())

    program = quaver.capture(whole, (images,)).eval()

    assert list(program.state_dict()) == names == list(net.state_dict())
    assert all(one is other for one, other in zip(net.modules(), modules, strict=True))
    assert torch.equal(program(images), net.eval()(images))


class KeepsWhatItComputes(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.seen = []

    def forward(self, x):
        self.last = self.convolution(x)
        self.seen = [*self.seen, self.last]
        return self.last


def test_no_tensor_of_the_tracer_stays_in_the_model():
    model = KeepsWhatItComputes()

    program = quaver.capture(model, (torch.zeros(2, 3, 8, 8),))

    assert not hasattr(model, "last")
    assert model.seen == []
    assert torch.equal(program.eval()(torch.ones(1, 3, 8, 8)), model(torch.ones(1, 3, 8, 8)))


def test_weights_that_are_not_finite_are_warned_of():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    model[0].bias.data[1] = torch.nan

    with pytest.warns(QuaverWarning, match="'0.bias' hold NaN or Inf"):
        quaver.capture(model, (torch.zeros(2, 3, 8, 8),))


def test_the_models_plain_attributes_are_the_programs_at_every_stage(images):
    """Ultralytics asks a model for its names, Hugging Face for its config."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    model.names, model.stage = {0: "cat"}, "the model's own"
    program = quaver.quant_aware(model, example_inputs=(images,))
    program(images)

    frozen = quaver.convert(copy.deepcopy(program).eval())

    assert program.names is frozen.names is model.names
    assert frozen.stage is quaver.Stage.FROZEN
