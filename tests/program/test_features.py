"""``quaver.feature_extractor``: tensors on the way, by the paths of modules and the names of ops."""

import copy

import pytest
import torch

import quaver
from quaver.errors import InputError, StageError


def test_features_are_what_hooks_see_and_the_output_stays_the_same(program, images):
    seen = {}
    for name in ("norm", "dropout"):
        program.get_submodule(name).register_forward_hook(lambda m, i, output, name=name: seen.update({name: output}))
    twin = copy.deepcopy(program).train()
    twin.dropout.p = program.dropout.p = 0.0
    expected = twin(images)

    output, features = quaver.feature_extractor(program.train(), ["norm", "dropout"])(images)

    assert torch.equal(output, expected)
    torch.testing.assert_close(features, seen, rtol=0, atol=0)


def test_ops_without_a_module_go_by_their_names(program, images):
    (name,) = (op.name for op in program.ops() if op.type == "elementwise_add" and op.name.endswith("add"))

    _, features = quaver.feature_extractor(program, [name, "stem"])(images)

    assert features[name].shape == (4, 4, 8, 8)


def test_a_loss_on_features_trains_what_is_in_front_of_them_alone(trained, images):
    trained.zero_grad()
    _, features = quaver.feature_extractor(trained.train(), ["conv"])(images)

    features["conv"].square().mean().backward()

    assert trained.stem.weight.grad.abs().sum() > 0
    assert trained.head.weight.grad is None


def test_in_evaluation_on_integers_outputs_keep_their_bits(trained, images):
    expected = trained.eval()(images)

    (added,) = (op.name for op in trained.ops() if op.quantized and op.type == "elementwise_add")  # read as integers alone
    output, features = quaver.feature_extractor(trained, ["norm", "tied", "dropout", added])(images)

    assert torch.equal(output, expected)
    assert torch.equal(trained(images), expected)
    assert all(bool(value.isfinite().all()) for value in features.values())


def test_the_extractor_is_a_module_around_the_program(program, images):
    extractor = quaver.feature_extractor(program, "norm")

    extractor.eval()

    assert not program.training
    assert {id(parameter) for parameter in extractor.parameters()} == {id(parameter) for parameter in program.parameters()}
    assert copy.deepcopy(extractor)(images)[1]["norm"].shape == (4, 4, 8, 8)


def test_unknown_names_are_refused_with_the_nearest(program):
    with pytest.raises(
        InputError, match=r"'nrom' is neither a module that the graph calls nor an op of it\. Did you mean 'norm'"
    ):
        quaver.feature_extractor(program, ["nrom"])


def test_a_plain_model_is_refused():
    with pytest.raises(InputError, match=r"takes a Program, not Linear\. quaver\.capture makes one"):
        quaver.feature_extractor(torch.nn.Linear(1, 1), ["x"])


def test_calls_of_one_module_are_told_apart(images):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return self.act(self.act(x) - 1)

    program = quaver.capture(Twice(), (images,))
    with pytest.raises(InputError, match=r"'act' is called 2 times\. Name one of the calls: 'act@0', 'act@1'"):
        quaver.feature_extractor(program, ["act"])

    _, features = quaver.feature_extractor(program, ["act@0", "act@1"])(images)

    assert torch.equal(features["act@0"], images.relu())
    assert torch.equal(features["act@1"], (images.relu() - 1).relu())


def test_between_a_convolution_and_its_batch_norm_there_is_nothing_to_read_in_evaluation(trained, images):
    extractor = quaver.feature_extractor(trained, ["stem"])
    extractor.train()(images)

    with pytest.raises(StageError, match="'stem': in evaluation a quantized convolution and its batch norm are one op"):
        extractor.eval()(images)
