"""All weights of a step in one launch: a program that trains to the same bits, whatever is done to it."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from needs import need_triton
from quaver.program.stateful_ops import COUNTED
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

    sizes, rounded = [], grouped_weights.WeightGroup.rounded
    monkeypatch.setattr(
        grouped_weights.WeightGroup, "rounded", lambda group, given: sizes.append(len(given)) or rounded(group, given)
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

    dtypes, rounded = [], grouped_weights.WeightGroup.rounded
    monkeypatch.setattr(
        grouped_weights.WeightGroup,
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


class Norms(nn.Module):
    """A norm that is called once, one that is called twice, and one that counts for its momentum."""

    def __init__(self):
        super().__init__()
        self.conv, self.once, self.twice = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.BatchNorm2d(2)
        self.mean_of_all = nn.BatchNorm2d(2, momentum=None)

    def forward(self, x):
        return self.mean_of_all(self.twice(self.conv(self.twice(self.once(x)))))


def test_norms_count_their_batches_as_in_the_float_model():
    torch.manual_seed(0)
    net, images = Norms(), torch.randn(4, 2, 3, 3)
    program = quaver.quant_aware(copy.deepcopy(net), example_inputs=(images,)).train()

    for _ in range(2):
        program(images)
        net.train()(images)
    program.once.eval()
    program(images)

    state = program.state_dict()
    counted = {name: int(state[f"{name}.num_batches_tracked"]) for name in ("once", "twice", "mean_of_all")}
    assert counted == {"once": 2, "twice": 6, "mean_of_all": 3}
    assert {name: int(module.num_batches_tracked) for name, module in net.named_children() if name != "conv"} == {
        "once": 2,
        "twice": 4,
        "mean_of_all": 2,
    }


def test_norms_are_counted_together(prepared, monkeypatch):
    together, add = [], torch._foreach_add_
    monkeypatch.setattr(torch, "_foreach_add_", lambda tensors, one: together.append(len(tensors)) or add(tensors, one))
    program = copy.deepcopy(prepared).train()

    program(torch.randn(2, 2, 4, 4))

    assert together == [1]
    assert not any(COUNTED in module.__dict__ for module in program.modules())


def test_a_step_that_breaks_off_leaves_no_mark_on_norms(prepared):
    program, images = copy.deepcopy(prepared).train(), torch.randn(2, 2, 4, 4)
    first = next(module for module in program.modules() if isinstance(module, ChannelWiseAbsMax))  # in front of the norm
    handle = first.register_forward_hook(lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        program(images)
    assert not any(COUNTED in module.__dict__ for module in program.modules())
    handle.remove()
    program(images)

    assert int(program.state_dict()["1.num_batches_tracked"]) == 2


def test_a_tensor_that_became_another_kind_is_read_where_it_is_now(prepared):
    program = copy.deepcopy(prepared).eval()
    images = torch.randn(2, 2, 4, 4)
    expected = program(images)
    bias = program.get_submodule("5")._parameters.pop("bias")
    program.get_submodule("5").register_buffer("bias", bias.detach() + 1)

    torch.testing.assert_close(program(images), expected + 1)


def test_a_tensor_that_is_gone_is_named(prepared):
    program = copy.deepcopy(prepared).eval()
    images = torch.randn(2, 2, 4, 4)
    program(images)
    program.get_submodule("5").bias = None

    with pytest.raises(KeyError, match=r"5\.bias"):
        program(images)
