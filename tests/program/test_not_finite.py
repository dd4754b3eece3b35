"""NaN and Inf in training: reported by name when the program goes to evaluation, never let into a threshold."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import quaver
from quaver.errors import QuaverWarning


class Logarithm(nn.Module):
    """Makes NaN of negative inputs, in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        with torch.no_grad():
            self.first.weight.copy_(torch.eye(3).view(3, 3, 1, 1))
            self.first.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.log(self.first(x)))


@pytest.fixture
def logarithm() -> quaver.Program:
    """Prepared, and trained on one good batch."""
    program = quaver.quant_aware(Logarithm(), example_inputs=(torch.ones(2, 3, 4, 4),)).train()
    program(torch.full((2, 3, 4, 4), 5.0))
    return program


def thresholds(program: quaver.Program) -> dict[str, list[float]]:
    return {name: quantizer.threshold.flatten().tolist() for name, quantizer in program.quantizers()}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_bad_input_is_named_and_moves_no_threshold(logarithm, value):
    before = thresholds(logarithm)
    bad = torch.full((2, 3, 4, 4), 5.0)
    bad[0, 0, 0, 0] = value
    logarithm(bad)

    with pytest.warns(QuaverWarning, match=r"NaN or Inf was seen in 'x' \(1 times\).*thresholds, which stay as they were"):
        logarithm.eval()

    assert thresholds(logarithm)["x"] == before["x"] == [5.0]


def test_nan_made_in_the_middle_names_the_tensor_where_it_appears(logarithm):
    before = thresholds(logarithm)
    logarithm(torch.full((2, 3, 4, 4), -5.0))

    with pytest.warns(QuaverWarning) as caught:
        logarithm.eval()

    (words,) = (str(one.message) for one in caught)
    assert "'log.output'" in words
    assert "'x'" not in words
    assert thresholds(logarithm)["log.output"] == before["log.output"]
    assert before["log.output"][0] > 1


def test_batches_are_counted(logarithm):
    for _ in range(3):
        logarithm(torch.full((2, 3, 4, 4), float("nan")))

    with pytest.warns(QuaverWarning, match=r"'x' \(3 times\)"):
        logarithm.eval()


def test_a_bad_batch_is_reported_once(logarithm):
    logarithm(torch.full((2, 3, 4, 4), float("nan")))
    with pytest.warns(QuaverWarning):
        logarithm.eval()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logarithm.train().eval()

    assert caught == []


def test_good_batches_give_no_warning(logarithm):
    logarithm(torch.full((2, 3, 4, 4), 2.0))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logarithm.eval()

    assert caught == []


def test_a_good_batch_after_a_bad_one_moves_the_threshold_again(logarithm):
    logarithm(torch.full((2, 3, 4, 4), float("nan")))
    logarithm(torch.full((2, 3, 4, 4), 9.0))

    with pytest.warns(QuaverWarning, match=r"'x' \(1 times\)"):
        logarithm.eval()

    # rate 0.9: (0.9·5 + 9) / (0.9 + 1)
    assert thresholds(logarithm)["x"] == pytest.approx([(0.9 * 5 + 9) / 1.9])


@pytest.mark.parametrize(
    "switch", [lambda program: program.eval(), lambda program: program.train(False)], ids=["eval", "train"]
)
def test_the_warning_points_at_the_line_that_switched(logarithm, switch):
    logarithm(torch.full((2, 3, 4, 4), float("nan")))

    with pytest.warns(QuaverWarning) as caught:
        switch(logarithm)

    assert caught[0].filename == __file__


def test_training_on_nothing_but_nan_leaves_the_tensor_unseen():
    program = quaver.quant_aware(nn.Conv2d(3, 3, 1), example_inputs=(torch.ones(2, 3, 4, 4),)).train()
    program(torch.full((2, 3, 4, 4), float("nan")))

    with pytest.warns(QuaverWarning, match="'input'"):
        program.eval()

    assert program.unseen() == ["input"]
    with pytest.raises(quaver.errors.StageError, match="'input' saw no data"):
        quaver.convert(program)


def trained_net() -> quaver.Program:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    program = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 4, 4),)).train()
    program(torch.randn(8, 3, 4, 4))
    return program.eval()


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["0.weight", "4.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"])
def test_what_holds_nan_or_inf_is_not_converted(name, value):
    program = trained_net()
    program.state_dict()[name].view(-1)[0] = value

    with pytest.raises(quaver.errors.ConversionError, match=f"'{name}' holds NaN or Inf"):
        quaver.convert(program)


def test_a_range_of_nan_is_not_converted():
    program = trained_net()
    state = program.quantizer("input").state_dict()
    next(value for value in state.values() if value.is_floating_point()).fill_(float("nan"))

    with pytest.raises(quaver.errors.ConversionError, match="'the range of input' holds NaN or Inf"):
        quaver.convert(program)


def test_a_negative_variance_is_not_converted():
    program = trained_net()
    program.state_dict()["1.running_var"][0] = -1

    with pytest.raises(quaver.errors.ConversionError, match=r"'0\.(bias|weight_scale)' holds NaN or Inf"):
        quaver.convert(program)


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_what_holds_nan_is_not_exported(tmp_path, target):
    frozen = quaver.convert(trained_net())
    frozen.state_dict()["4.bias"][0] = float("nan")

    with pytest.raises(quaver.errors.ConversionError, match=r"'4\.bias' holds NaN or Inf"):
        quaver.export(frozen, tmp_path, target=target)
    assert list(tmp_path.iterdir()) == []


class Masked(nn.Module):
    """Adds a buffer of Inf, as an attention's mask is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        return (self.layer(x) + self.mask).softmax(-1)


def test_a_mask_of_inf_is_converted():
    program = quaver.quant_aware(Masked(), example_inputs=(torch.zeros(2, 4, 4),)).train()
    program(torch.randn(2, 4, 4))

    assert bool(torch.isfinite(quaver.convert(program)(torch.randn(2, 4, 4))).all())
