import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConversionError, StageError
from quaver.passes import QuantizationFreezePass, QuantizationTransformPass


def targets(program):
    return [str(node.target) for node in program.graphs["eval"].nodes if node.op == "call_function"]


def test_quantizers_become_decomposed_ops_and_batch_norm_disappears(trained):
    frozen = QuantizationFreezePass().apply(trained)

    names = targets(frozen)
    assert "quantized_decomposed.quantize_per_tensor.default" in names
    assert "quantized_decomposed.dequantize_per_channel.default" in names
    assert not any("batch_norm" in name for name in names)
    assert not any(node.op == "call_module" for node in frozen.graphs["eval"].nodes)


def test_weights_are_integers_of_the_8_bit_range_stored_as_float32(trained):
    frozen = QuantizationFreezePass().apply(trained)

    weights = [value for name, value in frozen.state_dict().items() if name.endswith(".weight")]
    assert len(weights) == 6
    for weight in weights:
        assert weight.dtype == torch.float32
        assert torch.equal(weight, weight.round())
        assert weight.abs().max() <= 127
    assert max(weight.abs().max() for weight in weights) == 127


def test_frozen_computes_what_was_trained_bit_for_bit(trained, images):
    frozen = QuantizationFreezePass().apply(trained)

    assert torch.equal(frozen(images), trained(images))


def test_integers_stay_as_trained_with_the_sign_turned_where_gamma_is_negative(trained):
    gamma = trained.state_dict()["stem_bn.weight"]
    weight = trained.state_dict()["stem.weight"]
    integers, _ = trained.quantizer("stem.weight").integers(weight)

    frozen = QuantizationFreezePass().apply(trained)

    assert (gamma < 0).any()
    assert (gamma > 0).any()
    assert torch.equal(frozen.state_dict()["stem.weight"], integers * gamma.sign().view(-1, 1, 1, 1))
    assert (frozen.state_dict()["stem.weight_scale"] > 0).all()


def test_a_channel_with_zero_gamma_gives_its_beta_and_no_nan(patterns, images, train):
    program = train(quaver.quant_aware(patterns, example_inputs=(images,)), lr=0.0)

    frozen = QuantizationFreezePass().apply(program)

    assert (frozen.state_dict()["body.weight"][3] == 0).all()
    assert frozen.state_dict()["body.bias"][3] == patterns.body_bn.bias[3]
    assert (frozen.state_dict()["body.weight_scale"] > 0).all()
    assert frozen(images).isfinite().all()


def test_weight_thresholds_are_taken_from_the_weights_as_they_are(trained, images):
    (before,) = [op.thresholds["weight"] for op in trained.ops() if op.name == "stem"]
    with torch.no_grad():
        trained.get_parameter("stem.weight").mul_(4)

    frozen = QuantizationFreezePass().apply(trained)

    assert torch.equal(frozen(images), trained(images))
    (stem,) = [op for op in frozen.ops() if op.name == "stem"]
    assert stem.thresholds["weight"] == [4 * threshold for threshold in before]


def test_the_frozen_program_does_not_follow_further_training(trained, images, train):
    frozen = QuantizationFreezePass().apply(trained)
    before = frozen(images)

    train(trained)

    assert torch.equal(frozen(images), before)


def test_a_program_with_nothing_quantized_computes_what_it_did(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    prepared = QuantizationTransformPass(skip_pattern="0").apply(quaver.capture(model, (images,)))

    frozen = QuantizationFreezePass().apply(prepared)

    assert torch.equal(frozen(images), model(images))


def test_freezing_before_any_data_was_seen_is_refused(patterns, images):
    prepared = quaver.quant_aware(patterns, example_inputs=(images,))

    with pytest.raises(StageError, match=r"'x', .* saw no data, so there is no range to convert with"):
        QuantizationFreezePass().apply(prepared)


def test_freezing_with_quantizers_switched_off_is_refused(trained):
    trained.apply(quaver.disable_fake_quant)

    with pytest.raises(StageError, match=r"'stem.weight', .* are switched off, so what was evaluated is not"):
        QuantizationFreezePass().apply(trained)


def test_freezing_twice_is_refused(trained):
    frozen = QuantizationFreezePass().apply(trained)

    with pytest.raises(StageError, match=r"the program is frozen, and the pass needs prepared"):
        QuantizationFreezePass().apply(frozen)


def test_a_custom_quantizer_is_refused_by_its_tensors_name(patterns, images, train):
    program = train(quaver.quant_aware(patterns, example_inputs=(images,), weight_quantize_func=torch.tanh))

    with pytest.raises(ConversionError, match=r"'stem.weight': its custom quantize function is on no integer grid"):
        QuantizationFreezePass().apply(program)


def test_a_weight_with_nan_is_refused_by_its_name(trained):
    with torch.no_grad():
        trained.get_parameter("left.weight")[0] = float("nan")

    with pytest.raises(ConversionError, match=r"'left.weight' holds NaN or Inf"):
        QuantizationFreezePass().apply(trained)


def test_a_frozen_program_cannot_be_trained(trained):
    frozen = QuantizationFreezePass().apply(trained)

    with pytest.raises(StageError, match=r"a frozen program cannot be trained"):
        frozen.train()
