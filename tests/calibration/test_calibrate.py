"""From a float model and images to a program that freezes to what it evaluates to, and that can be trained on."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from needs import need_executorch, need_litert
from quaver.errors import ConfigError, InputError, StageError
from tiny import Tiny

IMAGES = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(5))
WAYS = {
    "default": {},
    "4 bits": {"weight_bits": 4},
    "all 4 bits": {"weight_bits": 4, "activation_bits": 4},
    "one range per weight": {"weight_quantize_type": "abs_max", "weight_bits": 4},
    "learned steps": {"weight_quantize_type": "channel_wise_learned_step", "activation_quantize_type": "learned_step"},
    "learned steps of 3 bits": {"weight_quantize_type": "channel_wise_learned_step", "weight_bits": 3},
    "ranges of weights by training": {"weight_quantize_type": "moving_average_abs_max", "weight_bits": 4},
    "full range": {"saturation_safe": False},
    "weights only": {"quant_weight_only": True, "weight_bits": 4},
    "clips": {"activation_preprocess_type": "PACT"},
}
EVERYTHING = {"search_weights": True, "round_weights": True}
NOTHING = {
    "ranges": "largest",
    "equalize": False,
    "search_weights": False,
    "round_weights": False,
    "correct_bias": False,
    "reestimate_bn": False,
}


def some_net():
    """With batch-norm statistics that fit the images, as a trained one has them."""
    torch.manual_seed(0)
    model = Tiny()
    with torch.no_grad():
        for _ in range(30):
            model(IMAGES)
    return model.eval()


class Depthwise(nn.Sequential):
    """Channels that differ in size, between layers that can be equalized."""

    def __init__(self):
        torch.manual_seed(1)
        super().__init__(
            nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Conv2d(8, 4, 1)
        )
        self[1].weight.data = torch.tensor([1, 0.3, 0.1, 2, 0.02, 1, 0.5, 4])


def noise(program, model):
    with torch.no_grad():
        wanted = model(IMAGES)
        return float((program(IMAGES) - wanted).square().sum() / wanted.square().sum())


@pytest.mark.parametrize("way", WAYS)
def test_what_is_calibrated_freezes_to_what_it_evaluates_to(way):
    program = quaver.calibrate(some_net(), [IMAGES], WAYS[way], **EVERYTHING)

    frozen, int8 = quaver.convert(program, save_int8=True)

    assert program.stage is quaver.Stage.PREPARED
    assert torch.equal(frozen(IMAGES), program(IMAGES))
    assert torch.equal(int8(IMAGES), program(IMAGES))


@pytest.mark.parametrize("left_out", NOTHING)
def test_each_means_can_be_left_out(left_out):
    everything = EVERYTHING | {"ranges": "output"}

    whole = quaver.calibrate(Depthwise().eval(), [IMAGES], {"weight_bits": 4}, **everything)
    less = quaver.calibrate(Depthwise().eval(), [IMAGES], {"weight_bits": 4}, **everything | {left_out: NOTHING[left_out]})

    assert not torch.equal(whole(IMAGES), less(IMAGES))
    assert torch.equal(quaver.convert(less)(IMAGES), less(IMAGES))


@pytest.mark.slow
def test_the_engine_computes_what_was_calibrated(tmp_path):
    program = quaver.calibrate(some_net(), [IMAGES], **EVERYTHING)

    result = quaver.verify(program, quaver.export(quaver.convert(program), tmp_path), [IMAGES])

    assert result.passed, result.failures


@pytest.mark.slow
@pytest.mark.parametrize("target", ["openvino", "onnx", "executorch", "litert"])
def test_every_engine_computes_from_bytes_what_was_calibrated_and_equalized(target, tmp_path):
    {"executorch": need_executorch, "litert": need_litert}.get(target, lambda: None)()
    image = quaver.ImageInput((0.5,) * 3, (0.23,) * 3)
    photos = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3)).astype(np.uint8)
    prepared = torch.from_numpy(image.prepared(photos))
    program = quaver.calibrate(Depthwise().eval(), [prepared], target=target, **EVERYTHING)
    file = quaver.export(quaver.convert(program), tmp_path, target=target, image=image)

    result = quaver.verify(program, file, [photos])

    assert (result.passed, result.integers_equal) == (True, 1), result.failures


def test_calibration_is_nearer_to_the_float_model_than_the_largest_values():
    model, config = some_net(), {"weight_bits": 4}

    plain = quaver.calibrate(model, [IMAGES], config, **NOTHING)
    calibrated = quaver.calibrate(model, [IMAGES], config)

    assert noise(calibrated, model) < 0.5 * noise(plain, model)


def test_what_was_given_is_not_changed():
    model = some_net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    program = quaver.quant_aware(model, example_inputs=(IMAGES[:2],))
    ranges = {name: value.clone() for name, value in program.state_dict().items()}

    quaver.calibrate(model, [IMAGES], {"weight_bits": 4}, **EVERYTHING)
    quaver.calibrate(program, [IMAGES], **EVERYTHING)

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, ranges[name]) for name, value in program.state_dict().items())


def test_a_float_and_a_prepared_program_come_to_the_same():
    model = some_net()
    program = quaver.capture(model, (IMAGES[:2],))

    one = quaver.calibrate(model, [IMAGES])
    other = quaver.calibrate(program, [IMAGES])
    third = quaver.calibrate(quaver.quant_aware(program), [IMAGES])

    assert torch.equal(one(IMAGES), other(IMAGES))
    assert torch.equal(one(IMAGES), third(IMAGES))


def test_batches_are_images_or_pairs_and_only_the_first_images_count():
    model, labels = some_net(), torch.zeros(8, dtype=torch.long)

    whole = quaver.calibrate(model, [IMAGES[:16]])
    pairs = quaver.calibrate(model, iter([(IMAGES[:8], labels), (IMAGES[8:16].numpy(), labels.numpy())]))
    first = quaver.calibrate(model, [IMAGES], images=16)

    assert torch.equal(whole(IMAGES), pairs(IMAGES))
    assert torch.equal(whole(IMAGES), first(IMAGES))


def test_training_goes_on_from_it():
    program = quaver.calibrate(some_net(), [IMAGES], {"weight_bits": 4})
    before = {name: q.threshold.clone() for name, q in program.quantizers() if name not in program.placements.weights}
    program.train()
    optimizer = torch.optim.SGD(program.parameters(), lr=1e-3)

    loss = program(IMAGES).square().mean()
    loss.backward()
    optimizer.step()
    program.eval()

    assert all(torch.isfinite(parameter).all() for parameter in program.parameters())
    for name, threshold in before.items():  # a range moves, as by any batch, and does not begin anew
        assert 0.5 * threshold < program.quantizer(name).threshold < 2 * threshold
    assert torch.equal(quaver.convert(program)(IMAGES), program(IMAGES))


def test_the_target_is_that_of_the_config():
    program = quaver.calibrate(some_net(), [IMAGES], target="onnx")

    assert program.placements.target == "onnx"
    with pytest.raises(ConfigError, match="says another"):
        quaver.calibrate(some_net(), [IMAGES], {"target": "openvino"}, target="onnx")


def test_progress_is_told():
    told = []

    quaver.calibrate(some_net(), [IMAGES], on_progress=lambda *words: told.append(words))

    assert {what for what, _, _ in told} == {"ranges", "layers"}
    assert all(done <= total for _, done, total in told)


WRONG = {
    "none": ([], "no images were given"),
    "empty": ([IMAGES[:0]], "no images were given"),
    "NaN": ([torch.full_like(IMAGES, torch.nan)], "batch 0 has NaN or Inf"),
    "shapes that differ": ([IMAGES, IMAGES[:, :, :4]], "Give images of one shape"),
    "no batch": ([{"images": IMAGES}], "a batch is images, or a pair"),
    "channels": ([torch.randn(4, 5, 8, 8)], "does not fit the captured"),
    "whole numbers": ([np.zeros((4, 3, 8, 8), np.uint8)], "does not run on these images"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_images_are_refused(case):
    batches, words = WRONG[case]
    program = quaver.capture(some_net(), (IMAGES[:2],))

    with pytest.raises(InputError, match=words):
        quaver.calibrate(program, batches)


def test_wrong_options_and_programs_are_refused():
    model = some_net()
    frozen = quaver.convert(quaver.calibrate(model, [IMAGES]))

    with pytest.raises(ConfigError, match="Did you mean 'ranges'"):
        quaver.calibrate(model, [IMAGES], range="output")
    with pytest.raises(ConfigError, match="one of output, tensor, largest"):
        quaver.calibrate(model, [IMAGES], ranges="best")
    with pytest.raises(StageError, match="its ranges are fixed"):
        quaver.calibrate(frozen, [IMAGES])
    with pytest.raises(InputError, match="takes a model or a program, not list"):
        quaver.calibrate([], [IMAGES])
    with pytest.raises(InputError, match=r"model\.float\(\)"):
        quaver.calibrate(some_net().double(), [IMAGES.double()])


class Explodes(nn.Module):
    """Gives no number for any image."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.second(torch.log(self.first(x) * 0 - 1))


def test_a_network_that_gives_no_numbers_is_refused():
    with pytest.raises(InputError, match="NaN or Inf on these images"):
        quaver.calibrate(Explodes(), [IMAGES])


class Attention(nn.Module):
    """A product of two activations, one of which is computed after the other is rounded."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = x.mean(1)
        return self.out(torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), -1) @ x)


@pytest.mark.parametrize("ranges", ["output", "tensor"])
def test_products_of_activations_are_calibrated_too(ranges):
    torch.manual_seed(0)
    model, types = Attention().eval(), ["matmul", "mul", "transpose"]

    program = quaver.calibrate(model, [IMAGES], {"quantize_op_types": types, "weight_bits": 4}, ranges=ranges)

    assert "matmul" in {op.type for op in program.ops() if op.quantized}
    assert noise(program, model) < 0.01
    assert torch.equal(quaver.convert(program)(IMAGES), program(IMAGES))
