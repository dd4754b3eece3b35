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
    return calibrated(asymmetric=True)


def asymmetric(program):
    return {tensor.maker_name: tensor for tensor in quantized_tensors(program) if tensor.low < 0 < 127 < tensor.high}


def test_tensors_that_hardly_go_below_zero_get_a_zero_point_of_their_own(skewed):
    tensors = asymmetric(quaver.convert(skewed))

    assert len(tensors) == 1  # behind the hard-swish; the other tensors are added or read by a linear layer, too
    (tensor,) = tensors.values()
    assert tensor.high - tensor.low == 255
    assert not asymmetric(quaver.convert(calibrated()))


def test_their_steps_are_smaller(skewed):
    ((name, tensor),) = asymmetric(quaver.convert(skewed)).items()

    (symmetric,) = (other for other in quantized_tensors(quaver.convert(calibrated())) if other.maker_name == name)

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


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "executorch", "litert"])
def test_other_engines_give_every_integer_too(target, tmp_path):
    {"executorch": need_executorch, "litert": need_litert}.get(target, lambda: None)()
    frozen = quaver.convert(calibrated(asymmetric=True, target=target))

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path, target=target), [IMAGES])

    assert asymmetric(frozen)
    assert (result.passed, result.integers_equal) == (True, 1), result.failures


def test_training_goes_on_with_it():
    program = calibrated(asymmetric=True).train()

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
    with pytest.raises(EngineError, match="was calibrated with asymmetric=True, for OpenVINO"):
        quaver.export(quaver.convert(skewed), tmp_path, target="tensorrt")
    with pytest.raises(ConfigError, match=r"TensorRT is not known to take it.*: openvino, onnx"):
        calibrated(asymmetric=True, target="tensorrt")
