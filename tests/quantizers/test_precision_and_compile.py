"""Quantizers under autocast, under torch.compile, and without a single host synchronisation."""

import copy
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from quaver.quantizers import (
    AbsMax,
    ChannelWiseAbsMax,
    LearnedStep,
    MovingAverageAbsMax,
    Observer,
    Quantizer,
    RangeAbsMax,
)
from quaver.quantizers.switches import disable_fake_quant, disable_observer

pytestmark = pytest.mark.slow

EVERY = [
    pytest.param(lambda **options: AbsMax(**options), id="abs_max"),
    pytest.param(lambda **options: ChannelWiseAbsMax(axis=1, **options), id="channel_wise_abs_max"),
    pytest.param(lambda **options: MovingAverageAbsMax(moving_rate=0.5, **options), id="moving_average_abs_max"),
    pytest.param(lambda **options: RangeAbsMax(window_size=4, **options), id="range_abs_max"),
    pytest.param(lambda **options: LearnedStep(**options), id="learned_step"),
    pytest.param(lambda **options: LearnedStep(axis=1, channels=4, **options), id="channel_wise_learned_step"),
    pytest.param(lambda **options: Observer(moving_rate=0.5, **options), id="observer"),
]
HAS_COMPILER = (shutil.which("c++") or shutil.which("g++")) and Path(sysconfig.get_path("include"), "Python.h").exists()


def batch(seed: int) -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(seed)) * (seed + 1)


def state_of(quantizer: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in quantizer.named_buffers()}


def assert_same(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def steps_of(quantizer: nn.Module, state_from: Quantizer) -> list[tuple[Tensor, Tensor, dict[str, Tensor]]]:
    """Result, gradient and state after each of three batches."""
    history = []
    for seed in range(3):
        x = batch(seed).requires_grad_()
        result = quantizer(x)
        result.square().sum().backward()
        history.append((result.detach(), x.grad, state_of(state_from)))
    return history


@pytest.fixture
def fresh_compiler():
    """Each test compiles for itself, and leaves nothing compiled behind."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_changes_neither_dtype_nor_result_nor_state(make, training, dtype):
    plain, cast = make().train(training), make().train(training)
    x = batch(0).to(dtype)
    expected = plain(x)

    with torch.autocast("cpu", torch.bfloat16):
        result = cast(x)

    assert_same(result, expected)
    assert result.dtype == dtype
    assert_same(state_of(cast), state_of(plain))
    assert cast.threshold.dtype == torch.float32


@pytest.mark.parametrize("make", EVERY)
def test_behind_a_layer_under_autocast_a_quantizer_keeps_bfloat16_and_sees_its_exact_range(make):
    layer, quantizer = nn.Linear(4, 4), make()

    with torch.autocast("cpu", torch.bfloat16):
        activation = layer(batch(0))
        result = quantizer(activation)

    assert activation.dtype == result.dtype == torch.bfloat16
    assert quantizer.threshold.dtype == torch.float32
    assert quantizer.threshold.amax() == activation.float().abs().amax()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("pass_through", [False, True])
def test_compiled_in_one_graph_training_gives_equal_results_gradients_and_state(make, pass_through):
    plain, quantizer = make(pass_through=pass_through), make(pass_through=pass_through)
    compiled = torch.compile(quantizer, fullgraph=True, backend="aot_eager")

    history = steps_of(compiled, state_from=quantizer)

    assert_same(history, steps_of(plain, state_from=plain))


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_compiled_in_one_graph_evaluation_gives_equal_results_and_state(make, seen):
    plain = make()
    if seen:
        plain(batch(3))
    plain.eval()
    quantizer = copy.deepcopy(plain)
    compiled = torch.compile(quantizer, fullgraph=True, backend="aot_eager")

    history = steps_of(compiled, state_from=quantizer)

    assert_same(history, steps_of(plain, state_from=plain))


@pytest.mark.skipif(not HAS_COMPILER, reason="inductor needs a C++ compiler and Python's headers")
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_to_machine_code_training_gives_equal_results_gradients_and_state():
    plain, quantizer = MovingAverageAbsMax(moving_rate=0.5), MovingAverageAbsMax(moving_rate=0.5)
    compiled = torch.compile(quantizer, fullgraph=True, backend="inductor")

    history = steps_of(compiled, state_from=quantizer)

    assert_same(history, steps_of(plain, state_from=plain))


class NoSynchronisation(TorchDispatchMode):
    """Fails on every op that would make the host wait for a device's value."""

    WAITS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "unique"})

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op._schema.name.removeprefix("aten::")
        masked = name.startswith("index") and any(index is not None and index.dtype == torch.bool for index in args[1])
        if name in self.WAITS or masked:
            raise AssertionError(f"{name} waits for the device")
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "wait",
    [lambda x: x.sum().item(), lambda x: bool(x.any()), lambda x: float(x[0]), torch.nonzero, lambda x: x[x > 0]],
    ids=["item", "bool", "float", "nonzero", "mask"],
)
def test_the_guard_sees_what_waits(wait):
    with pytest.raises(AssertionError, match="waits for the device"), NoSynchronisation():
        wait(torch.ones(3))


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_forward_and_backward_never_wait_for_the_device(make, training, signed):
    quantizer = make(signed=signed, tensors=2).train(training)
    x, y = batch(0).requires_grad_(), batch(1).requires_grad_()

    with NoSynchronisation():
        (quantizer(x, 0).sum() + quantizer(y, 1).sum()).backward()
        integers, scale = quantizer.integers(x)
        quantizer(x, None)
        quantizer.apply(disable_observer)(x)
        quantizer.apply(disable_fake_quant)(x)

    assert x.grad.shape == y.grad.shape == integers.shape == (5, 4)
    assert scale.isfinite().all()
