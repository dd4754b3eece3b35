"""A captured model gives, bit for bit, what the model gives: in training and in evaluation, eager and compiled."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver


def outputs(module: nn.Module, x: torch.Tensor, *, training: bool) -> torch.Tensor:
    torch.manual_seed(3)
    return module.train(training)(x.clone())


def assert_same(model: nn.Module, x: torch.Tensor) -> None:
    """Program and model give the same bits, and leave the same buffers, in both modes."""
    program = quaver.capture(copy.deepcopy(model), (x.clone(),))
    for training in (True, False, True):
        expected, given = outputs(model, x, training=training), outputs(program, x, training=training)
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
    torch.testing.assert_close(dict(program.named_buffers()), dict(model.named_buffers()), rtol=0, atol=0)


def test_batch_norm_dropout_stochastic_depth_and_in_place_ops(net, images):
    assert_same(net, images)


def test_the_training_outputs_depend_on_the_seed(net, images):
    program = quaver.capture(net, (images,)).train()

    torch.manual_seed(3)
    one = program(images)
    torch.manual_seed(4)
    other = program(images)

    assert not torch.equal(one, other)


def test_gradients_are_those_of_the_model(net, images):
    program = quaver.capture(copy.deepcopy(net), (images,))

    for module in (net, program):
        outputs(module, images, training=True).square().sum().backward()

    for expected, given in zip(net.parameters(), program.parameters(), strict=True):
        assert expected.grad is not None
        torch.testing.assert_close(given.grad, expected.grad, rtol=0, atol=0)


def test_batch_norm_without_statistics_or_affine(images):
    assert_same(nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, track_running_stats=False)), images)


class Written(nn.Module):
    """A convolution whose output is written into by one of the ways below, and read again."""

    def __init__(self, write):
        super().__init__()
        torch.manual_seed(5)
        self.conv = nn.Conv2d(3, 4, 1)
        self.last = nn.Conv2d(4, 4, 1)
        self.none = nn.Dropout(0.0)
        self.write = write

    def forward(self, x):
        return self.write(self, self.conv(x))


def through_a_slice(self, y):
    part = y[:, :2]
    part += 5.0
    return self.last(y)


def through_a_slice_assignment(self, y):
    y[:, 1:3] += 5.0
    return self.last(y)


def through_a_reshape(self, y):
    y.view(y.shape[0], -1).mul_(3.0)
    return self.last(y)


def through_a_narrow(self, y):
    y.narrow(1, 0, 2).mul_(-4.0)
    return self.last(y)


def base_under_a_view(self, y):
    part = y[:, :2]
    y.relu_()
    return self.last(y) + part.sum(1, keepdim=True)


def through_a_contiguous(self, y):
    same = y.contiguous()
    same += 5.0
    return self.last(y)


def through_an_idle_dropout(self, y):
    same = self.none(y)
    same += 5.0
    return self.last(y)


def twice(self, y):
    y += 1.0
    y *= y.sigmoid()
    y.clamp_(-0.5, 0.5)
    return self.last(y) + y


def onto_itself(self, y):
    y += y
    return self.last(y)


def read_before_and_after(self, y):
    before = self.last(y)
    y.mul_(2.0)
    return before + self.last(y)


WRITES = [
    through_a_slice,
    through_a_slice_assignment,
    through_a_reshape,
    through_a_narrow,
    base_under_a_view,
    through_a_contiguous,
    through_an_idle_dropout,
    twice,
    onto_itself,
    read_before_and_after,
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_write_in_place_is_seen_by_every_later_reader(write, images):
    assert_same(Written(write), images)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_write_in_place_is_seen_through_a_quantizer(write, images):
    model = Written(write)
    # untrained weights are uniform: bounding their pairs would show as more than rounding
    program = quaver.quant_aware(model, {"saturation_safe": False}, example_inputs=(images,))
    program.train()(images)

    errors = [program.train(training)(images) - model.train(training)(images) for training in (True, False)]

    # a few layers of 8 bits are each within some steps of 1/127; a write that is lost shows as tens of percent
    largest, worst = model(images).abs().max().item(), torch.stack(errors).abs().max().item()
    assert worst < 0.06 * largest


@pytest.mark.parametrize("activation", [F.relu6, F.hardswish, F.silu, F.leaky_relu, F.elu])
def test_in_place_activations(activation, images):
    class Activated(nn.Module):
        def forward(self, x):
            return activation(x * 4.0, inplace=True) + x

    assert_same(Activated(), images)


def test_an_input_that_the_model_writes_into_by_an_activation_gives_the_same_output(images):
    assert_same(nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 2, 1)), images)


def test_a_part_of_the_forward_without_gradients(images):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            with torch.no_grad():
                x = self.body(x)
            return self.head(x)

    model = Frozen()
    program = quaver.capture(model, (images,)).train()

    program(images).sum().backward()

    assert torch.equal(program(images), model(images))
    assert model.body.weight.grad is None
    assert model.head.weight.grad is not None


def test_two_modules_that_share_one_parameter(images):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).relu())

    model = Tied()
    program = quaver.capture(model, (images,))

    program.train()(images).sum().backward()
    with torch.no_grad():
        model.first.weight.mul_(0.5)

    assert list(program.state_dict()) == list(model.state_dict()) == ["first.weight", "first.bias", "second.weight"]
    assert len(list(program.parameters())) == 2
    assert torch.equal(program(images), model(images))


def test_a_module_that_is_called_twice(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, momentum=0.5)

        def forward(self, x):
            return self.norm(self.conv(self.norm(self.conv(x))))

    assert_same(Twice(), images)


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_compiled_equals_eager(net, images, prepare, training):
    program = quaver.quant_aware(net, example_inputs=(images,)) if prepare else quaver.capture(net, (images,))
    program.train()(images)
    twin = copy.deepcopy(program)
    torch._dynamo.reset()
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")

    expected = outputs(program, images, training=training)
    given = outputs(compiled, images, training=training)

    # float rounding: the compiler may write an average or a variance as another sum
    torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dict(twin.named_buffers()), dict(program.named_buffers()), rtol=1e-5, atol=1e-6)
