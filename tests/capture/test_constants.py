"""Tensors that a model's code holds, and not its modules, belong to the program."""

import copy

import pytest
import torch
from torch import nn

import quaver


class Normalizing(nn.Module):
    """Makes its constants on the way, in every manner that is common."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.offsets = torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)  # a plain attribute, no buffer

    def forward(self, x):
        mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
        ramp = torch.arange(8, device=x.device, dtype=x.dtype)
        return self.conv((x - mean) * torch.ones(8, device=x.device) + ramp).relu() + self.offsets  # else folded


class Following(nn.Module):
    """Sends constants to wherever its input is."""

    def __init__(self, send):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.send = send

    def forward(self, x):
        return self.conv(x) + self.send(torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1), x)


def test_outputs_are_those_of_the_model(images):
    model = Normalizing()

    program = quaver.capture(model, (images,))

    assert torch.equal(program.eval()(images), model.eval()(images))
    assert torch.equal(program.train()(images), model.train()(images))


def test_constants_are_no_state(images):
    model = Normalizing()

    program = quaver.capture(model, (images,))

    assert list(program.state_dict()) == list(model.state_dict())
    assert [name for name, _ in program.named_parameters()] == [name for name, _ in model.named_parameters()]


def test_constants_change_dtype_with_the_program(images):
    program = quaver.capture(Normalizing(), (images,)).eval()
    expected = program(images)

    given = program.to(torch.float64)(images.double())

    assert given.dtype is torch.float64
    torch.testing.assert_close(given.float(), expected)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_constants_move_with_the_program(images, mode):
    program = getattr(quaver.capture(Normalizing(), (images,)), mode)()

    program.to("meta")  # a device that every machine has

    assert program(images.to("meta")).device.type == "meta"


@pytest.mark.parametrize(
    "send",
    [lambda c, x: c.to(x.device), lambda c, x: c.to(x), lambda c, x: c.type_as(x), lambda c, x: x.new_tensor([1.0]) + 0 * x],
    ids=["to_device", "to_tensor", "type_as", "new_tensor"],
)
def test_constants_that_follow_the_input_move_with_the_program(images, send):
    model = Following(send)
    program = quaver.capture(model, (images,)).eval()
    expected = model.eval()(images)

    given = program(images)
    program.to("meta")

    assert torch.equal(given, expected)
    assert program(images.to("meta")).device.type == "meta"


@pytest.mark.parametrize("moved", ["program", "view"])
def test_constants_move_with_a_program_that_shares_its_tensors(images, moved):
    program = quaver.capture(Normalizing(), (images,))
    view = program.clone(for_test=True)

    {"program": program, "view": view}[moved].to("meta")

    assert program(images.to("meta")).device.type == "meta"
    assert view(images.to("meta")).device.type == "meta"


def test_constants_survive_copying(images):
    program = quaver.capture(Normalizing(), (images,)).eval()
    expected = program(images)

    twin = copy.deepcopy(program)

    assert torch.equal(twin(images), expected)


@pytest.mark.parametrize("stage", ["float", "prepared", "frozen", "int8"])
def test_constants_survive_saving(images, tmp_path, stage):
    program = quaver.capture(Normalizing(), (images,))
    prepared = quaver.quant_aware(program)
    prepared.train()(images)
    frozen, int8 = quaver.convert(prepared, save_int8=True)
    one = {"float": program, "prepared": prepared, "frozen": frozen, "int8": int8}[stage].eval()

    restored = quaver.load(quaver.save(one, tmp_path))

    assert torch.equal(restored(images), one(images))
    assert list(restored.state_dict()) == list(one.state_dict())
