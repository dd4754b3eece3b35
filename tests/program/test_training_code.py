"""All weights of a step in one launch: a program that trains to the same bits, whatever is done to it."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from needs import need_triton
from quaver.quantizers import ChannelWiseAbsMax, fused
from samples import assert_same_state

need_triton()


@pytest.fixture(scope="module")
def prepared():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.Flatten(), nn.Linear(12, 2))
    return quaver.quant_aware(net, example_inputs=(torch.randn(2, 2, 4, 4),))


@pytest.fixture
def groups(monkeypatch):
    """How many weights each launch took."""
    from quaver.quantizers.fused import grouped_weights

    sizes, rounded = [], grouped_weights.rounded
    monkeypatch.setattr(
        grouped_weights,
        "rounded",
        lambda quantizers, given, *more: sizes.append(len(given)) or rounded(quantizers, given, *more),
    )
    return sizes


def trained(program, wanted, steps=2, autocast=False):
    images = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(program.parameters(), lr=0.1, momentum=0.9)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setenv(fused.SWITCH, wanted)
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = program.train()(images).float().square().sum()
            loss.backward()
            optimizer.step()
    return dict(program.state_dict())


@pytest.mark.parametrize("autocast", [False, True])
def test_one_launch_has_all_weights_and_trains_to_the_same_bits(prepared, groups, autocast):
    expected = trained(copy.deepcopy(prepared), "0", autocast=autocast)

    actual = trained(copy.deepcopy(prepared), "1", autocast=autocast)

    assert groups == [3, 3]
    assert_same_state(actual, expected)


def test_under_autocast_weights_come_as_layers_read_them(prepared, monkeypatch):
    from quaver.quantizers.fused import grouped_weights

    dtypes, rounded = [], grouped_weights.rounded
    monkeypatch.setattr(
        grouped_weights,
        "rounded",
        lambda *given: dtypes.extend(value.dtype for value in rounded(*given)) or rounded(*given),
    )

    trained(copy.deepcopy(prepared), "1", steps=1, autocast=True)

    assert set(dtypes) == {torch.bfloat16}


def test_a_tensor_that_others_read_too_keeps_its_dtype():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 1)

        def forward(self, x):
            return self.conv(x), F.avg_pool2d(x, 2)

    program = quaver.quant_aware(Net(), example_inputs=(torch.randn(2, 2, 4, 4),))
    images = torch.randn(2, 2, 4, 4)
    results = []
    for wanted in "01":
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"), torch.autocast("cpu", torch.bfloat16):
            patch.setenv(fused.SWITCH, wanted)
            results.append(copy.deepcopy(program).train()(images))

    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert results[0][1].dtype == torch.float32


def test_a_module_in_the_place_of_another_is_read(prepared):
    program = copy.deepcopy(prepared).eval()
    images = torch.randn(2, 2, 4, 4)
    before = program(images)

    program._modules["5"] = nn.Linear(12, 2)

    assert not torch.equal(program(images), before)


def test_nothing_of_it_is_kept(prepared):
    program = copy.deepcopy(prepared)
    names = set(program.state_dict())

    trained(program, "1")

    quantizers = [module for module in program.modules() if isinstance(module, ChannelWiseAbsMax)]
    assert len(quantizers) == 3
    assert all(quantizer.precomputed is None for quantizer in quantizers)
    assert set(program.state_dict()) == names
    assert_same_state(trained(copy.deepcopy(program), "1"), trained(program, "0"))


def test_a_compiler_finds_the_expressions(prepared, groups, monkeypatch):
    monkeypatch.setenv(fused.SWITCH, "1")
    program = copy.deepcopy(prepared).train()

    torch.compile(program, backend="eager", fullgraph=True)(torch.randn(2, 2, 4, 4))

    assert groups == []
