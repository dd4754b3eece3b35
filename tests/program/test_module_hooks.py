"""Hooks on a program's modules are called with what the model's modules would be given, or refused by name."""

import copy

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import StageError


class Block(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))


class Net(nn.Module):
    """Blocks in a block, one called twice, one that gives a pair, and one that gives what it is given."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.body = nn.Sequential(Block(), Block())
        self.same = nn.Identity()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.same(self.body(self.body(self.stem(x))))
        x = x.flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x)[0].mean(1))


@pytest.fixture(scope="module")
def nets():
    torch.manual_seed(0)
    net = Net()
    return net, quaver.capture(copy.deepcopy(net), (torch.zeros(2, 3, 6, 6),))


@pytest.fixture
def net(nets):
    return copy.deepcopy(nets[0])


@pytest.fixture
def program(nets):
    return copy.deepcopy(nets[1])


@pytest.fixture
def images():
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(1))


HOOKED = ["stem", "body", "body.0", "body.0.0", "body.1.2", "same", "head"]


def noting(root, names=HOOKED):
    """What hooks on these modules see, in order."""
    seen = []
    for name in names:
        module = root.get_submodule(name)
        module.register_forward_pre_hook(lambda m, inputs, name=name: seen.append((name, "in", inputs[0].detach().clone())))
        module.register_forward_hook(
            lambda m, inputs, output, name=name: seen.append((name, type(m).__name__, len(inputs), output.detach().clone()))
        )
    return seen


@pytest.mark.parametrize("training", [True, False])
def test_hooks_of_a_float_program_see_what_those_of_the_model_see(net, program, images, training):
    expected, given = noting(net), noting(program)

    net.train(training)(images)
    program.train(training)(images)

    assert sorted(note[:-1] for note in given) == sorted(note[:-1] for note in expected)
    for name in HOOKED:
        torch.testing.assert_close(
            [note[-1] for note in given if note[0] == name],
            [note[-1] for note in expected if note[0] == name],
            rtol=0,
            atol=0,
        )


def test_forward_hooks_are_called_from_the_inside_out(program, images):
    seen = noting(program)

    program(images)

    behind = [note[0] for note in seen if note[1] != "in"]
    once = ["body.0.0", "body.0", "body.1.2", "body"]
    assert behind == ["stem", *once, *once, "same", "head"]


def test_hooks_of_a_quantized_program_change_nothing(program, images):
    prepared = quaver.quant_aware(program)
    prepared.train()(images)
    twin = copy.deepcopy(prepared)
    trained, evaluated = prepared(images), prepared.eval()(images)

    seen = noting(twin.train(), ["body", "body.0", "body.1.2"])

    assert torch.equal(twin(images), trained)
    noted = len(seen)
    assert torch.equal(twin.eval()(images), evaluated)
    assert noted == len(seen) / 2 == 12


def test_a_forward_hook_may_give_back_another_output(program, images):
    program.body.register_forward_hook(lambda module, inputs, output: output * 0)

    given = program(images)

    assert torch.equal(given[0], given[1])


def test_a_hook_that_was_removed_is_called_no_more(program, images):
    seen = []
    handle = program.body.register_forward_hook(lambda *given: seen.append(given))
    program(images)
    handle.remove()

    program(images)

    assert len(seen) == 2


def test_a_hook_that_comes_later_is_called_from_then_on(program, images):
    program(images)
    seen = noting(program, ["body"])
    program(images)
    behind = []
    program.body.register_forward_hook(lambda *given: behind.append(given))

    program(images)

    assert (len(seen), len(behind)) == (8, 2)


def test_hooks_with_keywords_get_them(program, images):
    seen = []
    program.head.register_forward_hook(
        lambda module, args, kwargs, output: seen.append((len(args), kwargs)), with_kwargs=True
    )
    program.head.register_forward_pre_hook(lambda module, args, kwargs: seen.append((len(args), kwargs)), with_kwargs=True)

    program(images)

    assert seen == [(1, {}), (1, {})]


def test_copies_have_the_hooks_too(program, images):
    seen = noting(program, ["body"])

    copy.deepcopy(program)(images)
    program.clone(for_test=True)(images)

    assert len(seen) == 8


@pytest.mark.filterwarnings("ignore:.*backward hook")
@pytest.mark.parametrize("register", [nn.Module.register_full_backward_hook, nn.Module.register_full_backward_pre_hook])
def test_a_backward_hook_is_refused_by_name(program, images, register):
    register(program.body, lambda *given: None)

    with pytest.raises(StageError, match=r"'body' has a backward hook.*quaver\.feature_extractor\(program, \['body'\]\)"):
        program(images)


def test_a_hook_on_a_module_that_gives_a_pair_is_refused_by_name(program, images):
    program.attention.register_forward_hook(lambda *given: None)

    with pytest.raises(StageError, match="'attention' has a hook, and it gives back several tensors"):
        program(images)


def test_a_pre_hook_that_gives_back_another_input_is_refused_by_name(program, images):
    program.body.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))

    with pytest.raises(StageError, match="'body': its forward pre-hook gives back another input"):
        program(images)


def test_evaluating_on_integers_refuses_another_output_and_the_inside_of_a_convolution(program, images):
    prepared = quaver.quant_aware(program)
    prepared.train()(images)
    handle = prepared.body.register_forward_hook(lambda module, inputs, output: output * 2)
    with pytest.raises(StageError, match="'body': its forward hook gives back another output"):
        prepared.eval()(images)
    handle.remove()
    prepared.body[0][0].register_forward_hook(lambda *given: None)

    with pytest.raises(
        StageError, match=r"'body\.0\.0': in evaluation a quantized convolution and its batch norm are one op"
    ):
        prepared(images)


def test_a_hook_that_was_taken_off_before_evaluating_is_not_refused(program, images):
    prepared = quaver.quant_aware(program)
    handle = prepared.body[0][0].register_forward_hook(lambda *given: None)
    prepared.train()(images)

    handle.remove()

    assert prepared.eval()(images).shape == (4, 5)


def test_a_hook_of_the_model_is_in_the_graph_and_is_not_called_again(net, images):
    calls = []

    def double(module, inputs, output):
        calls.append(output)
        return output * 2

    net.stem.register_forward_hook(double)
    with pytest.warns(quaver.errors.QuaverWarning, match=r"'stem' had a hook when it was captured \(.*double\)"):
        program = quaver.capture(net, (images,))
    traced = len(calls)
    program.stem.register_forward_hook(lambda *given: None)

    given = program.eval()(images)

    assert len(calls) == traced
    assert torch.equal(given, net.eval()(images))


@pytest.mark.filterwarnings("ignore:.*assigned during export", "ignore:.*weight_norm")
def test_weight_norm_whose_hook_is_in_the_graph_is_not_warned_of(images):
    net = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 4, 1)), nn.ReLU())

    program = quaver.capture(net, (images,))

    assert torch.equal(program(images), net(images))
