"""Asymmetric ranges: chosen where they win, stored with a zero point of their own, and exact on the engine."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from needs import need_executorch, need_litert
from quaver.errors import ConfigError, EngineError
from quaver.program.quantized_tensors import quantized_tensors

IMAGES = torch.randn(16, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class Skewed(nn.Module):
    """Tensors that hardly go below zero, for convolutions whole and depthwise, for a sum, and for a linear layer."""

    def __init__(self):
        super().__init__()
        self.stem, self.apart = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.norm, self.whole, self.head = nn.BatchNorm2d(16), nn.Conv2d(16, 16, 1), nn.Linear(16, 5)

    def forward(self, x):
        x = nn.functional.hardswish(4 * self.stem(x))
        y = nn.functional.silu(6 * self.norm(self.apart(x)))
        y = y + self.whole(y)
        return self.head(nn.functional.silu(y).mean((2, 3)))


def calibrated(**options):
    torch.manual_seed(0)
    return quaver.calibrate(Skewed().eval(), [IMAGES], **options)


@pytest.fixture(scope="module")
def skewed():
    return calibrated()


def asymmetric(program):
    return {tensor.maker_name: tensor for tensor in quantized_tensors(program) if tensor.low < 0 < 127 < tensor.high}


def test_tensors_that_hardly_go_below_zero_get_a_zero_point_of_their_own(skewed):
    tensors = asymmetric(quaver.convert(skewed))

    assert len(tensors) == 1  # behind the hard-swish; the other tensors are added or read by a linear layer, too
    (tensor,) = tensors.values()
    assert tensor.high - tensor.low == 255
    assert not asymmetric(quaver.convert(calibrated(asymmetric=False)))


def test_engines_that_do_not_take_it_are_not_given_it():
    assert not asymmetric(quaver.convert(calibrated(target="tensorrt")))


def test_their_steps_are_smaller(skewed):
    ((name, tensor),) = asymmetric(quaver.convert(skewed)).items()

    (symmetric,) = (
        other for other in quantized_tensors(quaver.convert(calibrated(asymmetric=False))) if other.maker_name == name
    )

    assert tensor.step < 0.6 * symmetric.step


@pytest.mark.slow
def test_what_is_evaluated_is_what_is_frozen_saved_and_executed(skewed, tmp_path):
    frozen = quaver.convert(skewed)
    quaver.save(skewed, tmp_path / "prepared")

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path / "file"), [IMAGES])

    with torch.no_grad():
        wanted = skewed(IMAGES)
        assert torch.equal(frozen(IMAGES), wanted)
        assert torch.equal(quaver.load(tmp_path / "prepared").eval()(IMAGES), wanted)
    assert (result.passed, result.integers_equal) == (True, 1), result.failures
    assert np.isfinite(wanted.numpy()).all()


OTHERS = ["onnx", "executorch", "litert", "litert_reference"]


def need(target):
    {"executorch": need_executorch, "onnx": lambda: None, "openvino": lambda: None}.get(target, need_litert)()


@pytest.mark.slow
@pytest.mark.parametrize("target", OTHERS)
def test_other_engines_give_every_integer_too(target, tmp_path):
    need(target)
    frozen = quaver.convert(calibrated(target=target))

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path, target=target), [IMAGES])

    assert asymmetric(frozen)
    assert (result.passed, result.integers_equal) == (True, 1), result.failures


@pytest.mark.slow
@pytest.mark.parametrize("target", OTHERS)
def test_a_program_for_one_engine_runs_on_the_others_too(skewed, target, tmp_path):
    need(target)
    frozen = quaver.convert(skewed)

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path, target=target), [IMAGES])

    assert result.passed, result.failures


@pytest.mark.slow
@pytest.mark.parametrize("target", ["openvino", *OTHERS])
def test_every_engine_gives_every_integer_from_bytes(target, tmp_path):
    need(target)
    image = quaver.ImageInput((0.5,) * 3, (0.23,) * 3)
    photos = np.random.default_rng(0).integers(0, 256, (16, 12, 12, 3)).astype(np.uint8)
    torch.manual_seed(0)
    program = quaver.calibrate(Skewed().eval(), [torch.from_numpy(image.prepared(photos))], target=target)
    file = quaver.export(quaver.convert(program), tmp_path, target=target, image=image)

    result = quaver.verify(program, file, [photos])

    assert asymmetric(quaver.convert(program))
    assert (result.passed, result.integers_equal) == (True, 1), result.failures


def prepared(**config):
    torch.manual_seed(1)
    return quaver.quant_aware(Skewed().eval(), config, example_inputs=(IMAGES[:2],))


@pytest.mark.parametrize("rule", ["moving_average_abs_max", "range_abs_max", "abs_max", "learned_step"])
def test_a_state_dict_brings_the_zero_points(rule):
    config = {"activation_quantize_type": rule}
    program, other = calibrated(config=config), prepared(**config)

    other.load_state_dict(program.state_dict())

    assert asymmetric(quaver.convert(program))
    assert torch.equal(other.eval()(IMAGES), program(IMAGES))


def test_a_view_of_a_program_has_the_zero_points_that_it_loads(skewed):
    program = prepared()
    view = program.clone(for_test=True)

    program.load_state_dict(skewed.state_dict())

    assert torch.equal(view(IMAGES), skewed(IMAGES))


def test_a_state_dict_without_zero_points_takes_them_away(skewed):
    symmetric, program = calibrated(asymmetric=False), calibrated()

    program.load_state_dict(symmetric.state_dict())

    assert not asymmetric(quaver.convert(program))
    assert torch.equal(program(IMAGES), symmetric(IMAGES))


def test_weights_alone_leave_zero_points_as_they_are(skewed):
    program = calibrated()

    program.load_state_dict(Skewed().state_dict(), strict=False)

    assert asymmetric(quaver.convert(program)).keys() == asymmetric(quaver.convert(skewed)).keys()


@pytest.mark.parametrize("zero_point", [0, 128, [1, 2], float("inf")])
def test_a_damaged_zero_point_is_named(skewed, zero_point):
    state = skewed.state_dict()
    (name,) = (name for name in state if name.endswith("zero_point"))

    with pytest.raises(RuntimeError, match=name.replace(".", r"\.")):
        prepared().load_state_dict(state | {name: torch.tensor(zero_point)})


def test_a_zero_point_for_another_grid_is_refused(skewed):
    with pytest.raises(RuntimeError, match="zero_point: the quantizer's integers are -8 to 7"):
        prepared(activation_bits=4).load_state_dict(skewed.state_dict())


def test_training_goes_on_with_it():
    program = calibrated().train()

    program(IMAGES).square().sum().backward()

    assert all(parameter.grad is None or bool(parameter.grad.isfinite().all()) for parameter in program.parameters())
    assert asymmetric(quaver.convert(program.eval()))


def test_a_frozen_program_with_it_is_analysed(skewed):
    frozen = quaver.convert(skewed)

    tensors = {tensor.name: tensor for tensor in quaver.analyze(frozen, [IMAGES]).tensors}

    assert any(tensor.step * tensor.high == pytest.approx(tensors[name].threshold) for name, tensor in _outputs(frozen))


def _outputs(frozen):
    return [(f"{name}.output", tensor) for name, tensor in asymmetric(frozen).items()]


def test_engines_that_are_not_known_to_take_it_are_refused(skewed, tmp_path):
    with pytest.raises(EngineError, match=r"was given a zero point of its own.*, for OpenVINO.*target='tensorrt'"):
        quaver.export(quaver.convert(skewed), tmp_path, target="tensorrt")
    with pytest.raises(ConfigError, match=r"TensorRT is not known to take it.*: openvino, onnx"):
        calibrated(asymmetric=True, target="tensorrt")
