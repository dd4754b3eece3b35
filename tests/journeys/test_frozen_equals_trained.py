"""What is measured on the trained program is what the frozen and the int8 program compute, on whole networks."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.models import MobileNetV1, MobileNetV2, ResNet
from quaver.models.resnet import BasicBlock

pytestmark = pytest.mark.slow

NETS = {
    "mobilenet_v1": lambda: MobileNetV1(10, 0.25, small_images=True),
    "mobilenet_v2": lambda: MobileNetV2(10, 0.25, small_images=True),
    "resnet": lambda: ResNet(BasicBlock, (1, 1, 1, 1), 10, small_images=True, width=16),
}
CONFIGS = {
    "default": {},
    "abs_max weights": {"weight_quantize_type": "abs_max"},
    "moving average weights": {"weight_quantize_type": "moving_average_abs_max"},
    "range weights": {"weight_quantize_type": "range_abs_max", "window_size": 10},
    "range activations": {"activation_quantize_type": "range_abs_max", "window_size": 10},
    "4 bits": {"weight_bits": 4, "activation_bits": 4},
    "weights only": {"quant_weight_only": True},
    "convolutions only": {"quantize_op_types": ["conv2d", "depthwise_conv2d"]},
}


def randomize_batch_norm(model):
    """Gammas of either sign, some zero, as training with weight decay can leave them."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data = torch.randn(module.weight.shape, generator=generator)
            module.weight.data[0] = 0
    return model


def trained_a_little(model, config, steps=3):
    generator = torch.Generator().manual_seed(4)
    qat = quaver.quant_aware(model, config, example_inputs=(torch.zeros(1, 3, 32, 32),))
    optimizer = torch.optim.SGD(qat.parameters(), lr=0.01)
    for _ in range(steps):
        images = torch.randn(8, 3, 32, 32, generator=generator)
        loss = F.cross_entropy(qat(images), torch.randint(0, 10, (8,), generator=generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return qat.eval()


@pytest.mark.parametrize("name", NETS)
def test_frozen_and_int8_are_bit_equal_to_the_trained_program(name, tmp_path):
    torch.manual_seed(0)
    model = randomize_batch_norm(NETS[name]())
    qat = trained_a_little(model, None)
    images = torch.randn(5, 3, 32, 32)

    frozen, int8 = quaver.convert(qat, save_int8=True)

    assert torch.equal(frozen(images), qat(images))
    assert torch.equal(int8(images), frozen(images))
    assert qat(images).std() > 0
    weighted = [op for op in int8.ops() if op.type in ("conv2d", "depthwise_conv2d", "mul")]
    assert all(op.quantized for op in weighted)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_way_to_quantize_freezes_to_what_was_trained(config):
    torch.manual_seed(0)
    qat = trained_a_little(NETS["resnet"](), CONFIGS[config], steps=2)
    images = torch.randn(2, 3, 32, 32)

    frozen, int8 = quaver.convert(qat, save_int8=True)

    assert torch.equal(frozen(images), qat(images))
    assert torch.equal(int8(images), frozen(images))


def test_the_int8_file_is_at_most_three_tenths_of_the_float_models(tmp_path):
    model = MobileNetV1(10, 0.5, small_images=True)
    qat = trained_a_little(model, None, steps=1)
    _, int8 = quaver.convert(qat, save_int8=True)

    quaver.save(int8, tmp_path / "int8")

    (weights,) = (tmp_path / "int8").glob("*.safetensors")
    assert weights.stat().st_size <= 0.3 * sum(value.nbytes for value in model.state_dict().values())


def test_literal_execution_of_the_frozen_graph_is_near(trained, images):
    frozen = quaver.convert(trained)

    literal = frozen.graph_module()(images)[0]

    # another order of float operations: now and then an activation lands on the other side of a tie
    assert (literal - frozen(images)).abs().max() < 0.02 * frozen(images).abs().max()


def test_abs_max_activations_are_evaluated_and_frozen_with_the_last_training_batch(patterns, images):
    qat = quaver.quant_aware(patterns, {"activation_quantize_type": "abs_max"}, example_inputs=(images,))
    qat.train()(images)
    qat.eval()

    frozen = quaver.convert(qat)

    (stem,) = [op for op in frozen.ops() if op.name == "stem"]
    assert stem.thresholds["input"] == [images.abs().max().item()]
    for batch in (images, 9 * images, images / 9):
        assert torch.equal(frozen(batch), qat(batch))


def test_quantizing_twice_is_refused(trained):
    with pytest.raises(quaver.errors.StageError, match="quant_aware: the program is prepared already"):
        quaver.quant_aware(trained)


def test_converting_a_float_program_is_refused(patterns, images):
    with pytest.raises(quaver.errors.StageError, match=r"has no quantizers. Call quaver.quant_aware first"):
        quaver.convert(quaver.capture(patterns, (images,)))


def test_converting_a_model_is_refused(patterns):
    with pytest.raises(quaver.errors.StageError, match=r"takes a program from quaver.quant_aware, not Patterns"):
        quaver.convert(patterns)


def test_a_model_without_example_inputs_is_refused(patterns):
    with pytest.raises(quaver.errors.InputError, match="needs example_inputs"):
        quaver.quant_aware(patterns)


def test_weights_only_leaves_activations_alone(patterns, images):
    qat = quaver.quant_aware(patterns, {"quant_weight_only": True}, example_inputs=(images,))

    rounding = [name for name, quantizer in qat.quantizers() if quantizer.kind != "observer"]
    assert rounding == list(qat.placements.weights)
    assert "stem.weight" in rounding


def test_gradients_flow_in_evaluation_mode_too(trained, images):
    trained.zero_grad()

    trained.eval()(images).sum().backward()

    assert trained.get_parameter("stem.weight").grad.abs().sum() > 0
    assert trained.get_parameter("stem_bn.weight").grad.abs().sum() > 0


def test_evaluation_under_autocast_computes_the_same_integers(trained, images):
    with torch.autocast("cpu", torch.bfloat16):
        result = trained(images)

    assert torch.allclose(result.float(), trained(images), atol=0.05 * trained(images).abs().max().item())


def test_training_under_autocast_works(patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,)).train()

    with torch.autocast("cpu", torch.bfloat16):
        loss = qat(images).float().square().mean()
    loss.backward()

    assert patterns.stem.weight.grad.isfinite().all()
    assert qat.quantizer("relu.output").accum.dtype == torch.float32
