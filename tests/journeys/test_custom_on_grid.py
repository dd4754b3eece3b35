"""A quantize function of a user's own that gives values on an int8 grid becomes ordinary int8."""

import pytest
import torch
from torch import nn

import quaver
from exact_nets import SHAPE, fresh
from quaver.errors import ConversionError
from quaver.program import EVAL
from quaver.program.views import Executable
from quaver.quantizers import CustomQuantizer
from quaver.quantizers.saturation import without_overflow

pytestmark = pytest.mark.slow


class Steps(nn.Module):
    """Rounds to multiples of a step that is learned; in evaluation between −127 and 127 times it."""

    def __init__(self, low=-127, high=127):
        super().__init__()
        self.step = nn.Parameter(torch.tensor(0.0371))
        self.low, self.high = low, high

    def forward(self, x):
        steps = x / self.step
        whole = steps + (steps.round() - steps).detach()
        return whole.clamp(self.low, self.high) * self.step


def filters(bits):
    """Each filter in steps of its largest value, as many write it."""

    def rounded(weight):
        largest = weight.abs().flatten(1).amax(1).view(-1, *[1] * (weight.dim() - 1))
        step = largest.clamp_min(1e-9) / (2 ** (bits - 1) - 1)
        return weight + ((weight / step).round() * step - weight).detach()

    return rounded


def normalized(weight):
    """Not the weight rounded, but a function of it: DoReFa's, at 6 bits."""
    small = weight.tanh()
    half = small / (2 * small.abs().amax()) + 0.5
    return weight + (2 * (half * 62).round() / 62 - 1 - weight).detach()


def per_tensor(weight):
    return (weight * 50).round().clamp(-63, 63) / 50


EIGHT = {"weight_quantize_func": filters(8)}
FUNCTIONS = {
    "activations": {"act_quantize_func": Steps},
    "activations on the whole grid": {"act_quantize_func": Steps(-128, 127)},
    "activations of 4 bits": {"act_quantize_func": Steps(-8, 7)},
    "weights of 4 bits": {"weight_quantize_func": filters(4)},
    "weights of 8 bits": EIGHT,
    "weights by one step": {"weight_quantize_func": per_tensor},
    "weights of a function": {"weight_quantize_func": normalized},
    "both": {"act_quantize_func": Steps, "weight_quantize_func": filters(5)},
    "behind a clip": {"act_quantize_func": Steps, "act_preprocess_func": quaver.quantizers.PACT(2.0)},
}


@pytest.mark.parametrize("which", FUNCTIONS)
def test_frozen_and_int8_are_bit_equal_to_the_trained_program(which, patterns, images, train):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), **FUNCTIONS[which]))

    frozen, int8 = quaver.convert(qat, save_int8=True)

    assert torch.equal(frozen(images), qat(images))
    assert torch.equal(int8(images), frozen(images))
    assert qat(images).std() > 0


@pytest.mark.parametrize("which", FUNCTIONS)
def test_the_frozen_program_computes_what_the_functions_compute(which, patterns, images, train):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), **FUNCTIONS[which]))

    frozen = quaver.convert(qat)

    literal = Executable(qat, qat.graphs[EVAL])(images)[0]  # calls the functions as they are, and multiplies in float
    # now and then an activation beside a tie is rounded the other way: a step in one of many inputs
    assert (literal - frozen(images)).abs().max() < 0.05 * literal.abs().max()


@pytest.mark.parametrize("which", FUNCTIONS)
def test_a_live_model_is_bit_equal_too(which, patterns, images, train):
    quanter = quaver.QAT(**FUNCTIONS[which])
    net = train(quanter.quantize(patterns))

    frozen = quanter.convert(net, quaver.InputSpec([None, 3, 16, 16]))

    assert torch.equal(frozen(images), net(images))


@pytest.mark.parametrize(("name", "ends"), [("MobileNet", (-128, 127)), ("Residuals", (-127, 127))])
def test_the_engine_computes_every_integer(name, ends, tmp_path):
    pytest.importorskip("openvino")
    net = fresh(name)
    functions = {"act_quantize_func": Steps(*ends), "weight_quantize_func": filters(6)}
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, *SHAPE),), **functions).train()
    qat(torch.randn(4, *SHAPE))
    batch = torch.randn(16, *SHAPE, generator=torch.Generator().manual_seed(4))

    artefact = quaver.export(quaver.convert(qat.eval()), tmp_path, target="openvino")
    result = quaver.verify(qat, artefact, [batch])

    assert result.first_layer is None
    assert len(result.layers) > 5
    assert result.largest_difference == 0


def test_gradients_flow_in_evaluation_mode_too(patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), **FUNCTIONS["both"]).eval()

    qat(images).sum().backward()

    assert qat.get_parameter("stem.weight").grad.abs().sum() > 0
    assert all(parameter.grad is not None for parameter in qat.quantizer_parameters())


def test_the_range_that_was_found_is_in_the_records(patterns, images, train):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), **FUNCTIONS["both"]))

    (stem,) = [op for op in quaver.convert(qat).ops() if op.name == "stem"]

    step = qat.quantizer("x").function.step.item()
    assert stem.thresholds["input"] == [pytest.approx(127 * step)]
    assert len(stem.thresholds["weight"]) == 16


def test_the_program_given_keeps_its_functions(patterns, images, train):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), **FUNCTIONS["both"]))
    before = qat(images)

    quaver.convert(qat.train())

    assert qat.quantizer("x").kind == "custom"
    assert torch.equal(qat.eval()(images), before)


@pytest.mark.parametrize("path", ["program", "live"])
def test_weights_that_would_overflow_16_bits_are_trained_as_they_will_run(path, patterns, images, train):
    quanter = quaver.QAT(weight_quantize_func=filters(8))
    prepare = quanter.quantize if path == "live" else quaver.quant_aware
    qat = train(prepare(patterns, **({} if path == "live" else {"example_inputs": (images,), **EIGHT})))
    spec = quaver.InputSpec([None, 3, 16, 16])

    frozen = quanter.convert(qat, spec) if path == "live" else quaver.convert(qat)

    assert torch.equal(frozen(images), qat(images))
    weights = [tensor for name, tensor in frozen.named_parameters() if name.endswith("weight") and tensor.dim() == 4]
    assert len(weights) > 3
    for integers in weights:
        axis = 1 if integers.shape[1] > 1 else None
        assert axis is None or torch.equal(without_overflow(integers, axis), integers)


def test_only_filters_that_would_overflow_are_rounded_to_a_wider_step():
    quantizer = CustomQuantizer(filters(8), axis=0, pairs=1).train()
    weight = torch.tensor([[127.0, 126.0, -3.0, 8.0], [127.0, -127.0, 64.0, 64.0]], requires_grad=True)

    rounded = quantizer(weight)
    rounded.sum().backward()

    integers, step = quantizer.eval().integers(weight)
    assert torch.equal(rounded[1], weight[1])
    assert (rounded[0] - weight[0]).abs().max() <= 253 / 128 / 2
    assert torch.equal(without_overflow(integers, 1), integers)
    assert torch.allclose(integers * step[:, None], rounded)
    assert torch.equal(weight.grad, torch.ones_like(weight))


def test_without_saturation_safe_the_functions_integers_are_left_alone(patterns, images, train):
    qat = train(quaver.quant_aware(patterns, {"saturation_safe": False}, example_inputs=(images,), **EIGHT))

    stored = quaver.convert(qat).get_parameter("stem.weight")

    assert stored.abs().amax((1, 2, 3)).eq(127).all()
    assert not torch.equal(without_overflow(stored, 1), stored)


def test_more_integers_than_the_config_has_bits_are_refused(patterns, images, train):
    qat = train(quaver.quant_aware(patterns, {"activation_bits": 4}, example_inputs=(images,), act_quantize_func=Steps))

    with pytest.raises(ConversionError, match=r"'x': its custom quantize function is on no integer grid: .* are -8 … 7"):
        quaver.convert(qat)


def test_a_step_per_filter_needs_a_config_with_a_step_per_filter(patterns, images, train):
    config = {"weight_quantize_type": "abs_max"}
    qat = train(quaver.quant_aware(patterns, config, example_inputs=(images,), weight_quantize_func=filters(4)))

    with pytest.raises(ConversionError, match=r"'stem.weight': its custom .* no integer grid: its values, up to"):
        quaver.convert(qat)
