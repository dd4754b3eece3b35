"""A user's own function in the place of a quantizer, or in front of one."""

import functools

import pytest
import torch
from torch import Tensor, nn

from quaver.errors import ConfigError
from quaver.quantizers import AbsMax, ChannelWiseAbsMax, CustomQuantizer, MovingAverageAbsMax, RangeAbsMax
from quaver.quantizers.custom import as_module
from quaver.quantizers.switches import disable_fake_quant, disable_observer


class Clip(nn.Module):
    """PACT's clipping: ``x − relu(x − u) + relu(−u − x)`` with a limit that is trained."""

    def __init__(self, limit: float = 2.0) -> None:
        super().__init__()
        self.limit = nn.Parameter(torch.tensor([limit]))

    def forward(self, x: Tensor) -> Tensor:
        return x - torch.relu(x - self.limit) + torch.relu(-self.limit - x)


def halve(x: Tensor) -> Tensor:
    return x / 2


X = torch.tensor([-5.0, -1.0, 0.5, 3.0])


@pytest.mark.parametrize("function", [halve, lambda x: x / 2, functools.partial(torch.mul, other=0.5)])
def test_a_function_takes_the_quantizers_place(function):
    quantizer = CustomQuantizer(function)

    assert torch.equal(quantizer(X), X / 2)


def test_a_module_class_is_made_anew_for_every_quantizer():
    first, second = CustomQuantizer(Clip), CustomQuantizer(Clip)

    with torch.no_grad():
        first.function.limit.fill_(1.0)

    assert torch.equal(first(X), X.clamp(-1, 1))
    assert torch.equal(second(X), X.clamp(-2, 2))


def test_a_module_is_copied_and_not_shared():
    original = Clip(limit=4.0)
    first, second = CustomQuantizer(original), CustomQuantizer(original)

    with torch.no_grad():
        first.function.limit.fill_(1.0)

    assert torch.equal(first(X), X.clamp(-1, 1))
    assert torch.equal(second(X), X.clamp(-4, 4))
    assert original.limit.item() == 4.0


@pytest.mark.parametrize("function", [None, 8, "round", [halve]])
def test_what_cannot_be_called_is_refused(function):
    with pytest.raises(
        ConfigError, match=r"a custom function is an nn.Module class, an nn.Module, or a function of one tensor"
    ):
        CustomQuantizer(function)


def test_parameters_of_a_custom_quantizer_are_trained_with_the_model():
    model = nn.Sequential(nn.Flatten(0), CustomQuantizer(Clip))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(X)[3].backward()  # 3 is clipped to the limit: the gradient with respect to it is 1

    optimizer.step()

    assert torch.equal(model(X), X.clamp(-1.5, 1.5))


def test_parameters_of_a_custom_quantizer_are_in_its_state_dict():
    trained, loaded = CustomQuantizer(Clip(3.0)), CustomQuantizer(Clip)

    loaded.load_state_dict(trained.state_dict())

    assert torch.equal(loaded(X), X.clamp(-3, 3))


def test_with_fake_quant_off_a_custom_function_is_not_called():
    quantizer = CustomQuantizer(halve)
    quantizer.apply(disable_fake_quant)

    assert torch.equal(quantizer(X), X)


def test_with_the_observer_off_a_custom_function_is_still_called():
    quantizer = CustomQuantizer(halve)
    quantizer.apply(disable_observer)

    assert torch.equal(quantizer(X), X / 2)


def test_a_custom_quantizer_has_no_threshold_that_anyone_knows():
    assert CustomQuantizer(halve).threshold.isnan()


def test_integers_of_a_custom_quantizer_off_the_grid_are_its_values_with_a_step_of_1():
    integers, scale = CustomQuantizer(torch.tanh).integers(X.bfloat16())

    torch.testing.assert_close(integers, X.bfloat16().tanh().float(), rtol=0, atol=0)
    assert scale == 1


def test_preprocess_sits_in_front_of_a_custom_function():
    quantizer = CustomQuantizer(lambda x: x + 1)
    quantizer.preprocess = as_module(halve)

    assert torch.equal(quantizer(X), X / 2 + 1)
    integers, scale = quantizer.integers(X)
    assert torch.equal(integers * scale, X / 2 + 1)


@pytest.mark.parametrize("rule", [AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, RangeAbsMax])
@pytest.mark.parametrize("preprocess", [Clip, Clip(2.0), lambda x: x.clamp(-2, 2)], ids=["class", "module", "function"])
def test_preprocess_sits_between_a_tensor_and_its_range(rule, preprocess):
    plain, quantizer = rule(bits=4), rule(bits=4)
    quantizer.preprocess = as_module(preprocess)

    rounded = quantizer(X.view(1, 4))

    assert quantizer.threshold == 2.0
    assert torch.equal(rounded, plain(X.clamp(-2, 2).view(1, 4)))
    assert torch.equal(quantizer.integers(X.view(1, 4))[0], plain.integers(X.clamp(-2, 2).view(1, 4))[0])


def test_preprocess_is_called_once_a_forward():
    calls = []
    quantizer = MovingAverageAbsMax()
    quantizer.preprocess = as_module(lambda x: calls.append(x) or x)

    quantizer(X)

    assert len(calls) == 1


def test_preprocess_still_acts_with_fake_quant_off():
    quantizer = MovingAverageAbsMax()
    quantizer.preprocess = as_module(halve)
    quantizer.apply(disable_fake_quant)

    assert torch.equal(quantizer(X), X / 2)
    assert torch.equal(quantizer.integers(X)[0], X / 2)


def test_a_gradient_reaches_the_parameters_of_preprocess():
    quantizer = MovingAverageAbsMax()
    quantizer.preprocess = as_module(Clip)

    quantizer(X)[3].backward()

    assert dict(quantizer.named_parameters()).keys() == {"preprocess.limit"}
    assert torch.equal(quantizer.preprocess.limit.grad, torch.tensor([1.0]))


def test_half_casts_the_parameters_of_preprocess_and_not_the_threshold():
    quantizer = MovingAverageAbsMax()
    quantizer.preprocess = as_module(Clip)

    result = quantizer.half()(X.half())

    assert result.dtype == torch.float16
    assert quantizer.threshold.dtype == torch.float32


def test_half_casts_the_parameters_of_a_custom_quantizer():
    quantizer = CustomQuantizer(nn.Linear(4, 4))

    result = quantizer.half()(X.half())

    assert result.dtype == torch.float16


def test_a_class_that_needs_arguments_is_named_and_a_partial_of_it_is_made():
    class Times(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(factor))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    with pytest.raises(ConfigError, match=r"'relu': Times could not be made: TypeError: .*functools\.partial\(Times, …\)"):
        CustomQuantizer(Times, "relu")
    first, second = (CustomQuantizer(functools.partial(Times, 0.5), "relu") for _ in range(2))

    assert torch.equal(first(X), X / 2)
    assert first.function is not second.function
    assert len(list(first.parameters())) == 1


def test_a_module_without_a_forward_is_refused():
    class Nothing(nn.Module):
        pass

    with pytest.raises(ConfigError, match="'relu': Nothing has no forward to call with the tensor"):
        CustomQuantizer(Nothing(), "relu")


def test_for_tensor_gives_a_module():
    class Lost(nn.Identity):
        def for_tensor(self, name: str) -> None:
            return None

    with pytest.raises(ConfigError, match=r"'relu': Lost\.for_tensor gave back NoneType, not an nn\.Module"):
        CustomQuantizer(Lost, "relu")


def test_what_is_called_in_inference_mode_is_fine():
    with torch.inference_mode():
        assert torch.equal(CustomQuantizer(halve)(X * 1), X / 2)
