import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConfigError, StageError
from quaver.graph.nodes import quantizer_of
from quaver.passes import QuantizationTransformPass


def records(program):
    return {op.name: op for op in program.ops()}


def calls(program, mode="eval"):
    return [quantizer_of(node) for node in program.graphs[mode].nodes if quantizer_of(node)]


def test_weights_and_inputs_of_the_listed_ops_get_quantizers(patterns, images):
    program = quaver.capture(patterns, (images,))

    prepared = QuantizationTransformPass(quantizable_op_type=["conv2d"]).apply(program)

    quantized = {op.name for op in prepared.ops() if op.quantized}
    assert quantized == {"stem", "body", "left", "right"}
    assert {"stem.weight", "body.weight", "left.weight", "right.weight"} <= set(calls(prepared))
    assert records(prepared)["fc"].reason == "'mul' is not among the op types to quantize"


def test_the_program_given_is_left_as_it_was(patterns, images):
    program = quaver.capture(patterns, (images,))
    before = set(program.state_dict())

    QuantizationTransformPass().apply(program)

    assert set(program.state_dict()) == before
    assert calls(program) == []


def test_a_tensor_that_feeds_several_ops_is_quantized_once(patterns, images):
    prepared = QuantizationTransformPass().apply(quaver.capture(patterns, (images,)))

    for mode in ("train", "eval"):
        assert calls(prepared, mode).count("hard_swish.output") == 1
    assert records(prepared)["left"].thresholds.keys() == {"weight", "input", "output"}


def test_a_weight_that_two_ops_share_has_one_quantizer_and_both_use_it(images, train):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1, bias=False)
            self.second = nn.Conv2d(3, 3, 3, padding=1, bias=False)
            self.second.weight = self.first.weight
            self.bn = nn.BatchNorm2d(3)
            nn.init.constant_(self.bn.weight, -1.0)

        def forward(self, x):
            return self.bn(self.second(torch.relu(self.first(x)))).mean((2, 3))

    prepared = train(quaver.quant_aware(Tied(), example_inputs=(images,)), classes=3)
    frozen, int8 = quaver.convert(prepared, save_int8=True)

    assert calls(prepared).count("first.weight") == 1
    assert records(prepared)["second"].thresholds["weight"] == records(prepared)["first"].thresholds["weight"]
    assert torch.equal(frozen(images), prepared(images))
    assert torch.equal(int8(images), frozen(images))


@pytest.mark.parametrize("pattern", ["body", ["nothing", "body"]])
def test_an_op_whose_scope_holds_a_skip_pattern_declines_and_says_so(patterns, images, pattern):
    prepared = QuantizationTransformPass(skip_pattern=pattern).apply(quaver.capture(patterns, (images,)))

    assert not records(prepared)["body"].quantized
    assert records(prepared)["body"].reason == "its scope 'body' contains the skip pattern 'body'"
    assert records(prepared)["stem"].quantized


def test_a_name_scope_in_the_models_forward_skips_what_is_inside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(3, 3, 1)
            self.b = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            x = self.a(x)
            with quaver.name_scope("skip_quant"):
                return self.b(x)

    prepared = QuantizationTransformPass().apply(quaver.capture(Net(), (torch.zeros(1, 3, 4, 4),)))

    assert records(prepared)["a"].quantized
    assert records(prepared)["b"].reason == "its scope 'b.skip_quant' contains the skip pattern 'skip_quant'"


class OfTheInput(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight * x.mean(), self.bias)


class OfTheInputInTraining(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight * x.mean() if self.training else self.weight, self.bias)


class Noisy(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, torch.bernoulli(self.weight.sigmoid()), self.bias)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (OfTheInput, "its weight is computed from the input, so it is another for each"),
        (OfTheInputInTraining, "its weight is computed from the input in training"),
        (Noisy, "its weight is another each time it is computed, with the same input, too"),
    ],
)
def test_a_weight_that_is_not_fixed_declines_and_says_so(layer, reason):
    prepared = QuantizationTransformPass().apply(quaver.capture(layer(3, 4, 3), (torch.zeros(2, 3, 8, 8),)))

    (convolution,) = [op for op in prepared.ops() if op.type == "conv2d"]
    assert convolution.reason == reason


def test_a_weight_that_the_model_computes_is_rounded_behind_what_computes_it():
    model = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))

    prepared = QuantizationTransformPass(saturation_safe=False).apply(quaver.capture(model, (torch.zeros(2, 3, 8, 8),)))

    (convolution,) = [op for op in prepared.ops() if op.type == "conv2d"]
    torch.testing.assert_close(torch.tensor(convolution.thresholds["weight"]), model.weight.detach().abs().amax((1, 2, 3)))
    assert [op.reason for op in prepared.ops() if op.type != "conv2d"] == [f"folded into {convolution.name!r}"]
    assert torch.equal(prepared.weight(f"{convolution.name}.computed_weight"), model.weight)


def test_a_program_without_the_op_keeps_its_graph():
    program = quaver.capture(nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), (torch.zeros(1, 3, 8, 8),))

    prepared = QuantizationTransformPass().apply(program)

    for mode in ("train", "eval"):
        assert [str(node) for node in prepared.graphs[mode].nodes] == [str(node) for node in program.graphs[mode].nodes]


def test_options_reach_the_quantizers(patterns, images):
    prepared = QuantizationTransformPass(
        weight_quantize_type="abs_max",
        activation_quantize_type="range_abs_max",
        weight_bits=4,
        activation_bits=6,
        window_size=7,
    ).apply(quaver.capture(patterns, (images,)))

    weight, activation = prepared.quantizer("stem.weight"), prepared.quantizer("x")
    assert (weight.kind, weight.grid.bits) == ("abs_max", 4)
    assert (activation.kind, activation.grid.bits, activation.window_size) == ("range_abs_max", 6, 7)


def test_the_moving_rate_reaches_the_quantizers(patterns, images):
    prepared = QuantizationTransformPass(moving_rate=0.5).apply(quaver.capture(patterns, (images,)))

    assert prepared.quantizer("x").moving_rate == 0.5


def test_tensors_behind_a_relu_are_unsigned_and_others_signed(patterns, images):
    prepared = QuantizationTransformPass().apply(quaver.capture(patterns, (images,)))

    assert prepared.quantizer("x").grid.signed
    assert not prepared.quantizer("pool2d.output").grid.signed
    assert prepared.quantizer("hard_swish.output").grid.signed


def test_training_quantizes_in_front_of_a_dropout(patterns, images):
    prepared = QuantizationTransformPass(quantizable_op_type=["mul"]).apply(quaver.capture(patterns, (images,)))

    (dropout,) = [node for node in prepared.graphs["train"].nodes if "dropout" in str(node.target)]
    assert dropout.args[0].meta["quantizer"] == "flatten.output"


def test_wrong_options_are_reported_together_with_the_way_out():
    with pytest.raises(ConfigError) as caught:
        QuantizationTransformPass(weight_bits=9, quantizable_op_type=["conv2", "elementwise_add"], moving_rate=1.0)

    message = str(caught.value)
    assert "weight_bits=9: takes a whole number from 2 to 8" in message
    assert "Did you mean 'conv2d'?" in message
    assert "moving_rate=1.0" in message


def test_a_frozen_program_is_refused(trained):
    frozen = quaver.convert(trained)

    with pytest.raises(StageError, match="the program is frozen, and the pass needs float or prepared"):
        QuantizationTransformPass().apply(frozen)


def test_a_model_instead_of_a_program_is_refused(patterns):
    with pytest.raises(StageError, match="takes a Program, not Patterns"):
        QuantizationTransformPass().apply(patterns)


def test_an_evaluation_view_is_refused(trained):
    with pytest.raises(StageError, match="evaluation view"):
        QuantizationTransformPass().apply(trained.clone(for_test=True))
