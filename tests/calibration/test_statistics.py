"""``quaver.reestimate_batch_norm``: statistics anew, and nothing else."""

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import InputError, StageError


@pytest.fixture
def prepared(images):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, momentum=None)
    )
    program = quaver.quant_aware(net, example_inputs=(images,))
    program.train()(images)
    return program


@pytest.fixture
def images():
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("frozen", [False, True])
def test_statistics_are_the_mean_over_the_batches_and_ranges_stay(prepared, images, frozen):
    batches = [(images, torch.zeros(4)), (images * 2 + 1, None)]
    before = {name: tensor.clone() for name, tensor in prepared.state_dict().items()}
    seen = {"1": [], "4": []}
    for name, place in (("0", "1"), ("3", "4")):
        prepared.get_submodule(name).register_forward_hook(lambda m, i, output, place=place: seen[place].append(output))
    if frozen:
        quaver.freeze_batch_norm(prepared)

    quaver.reestimate_batch_norm(prepared, batches)

    for place, outputs in seen.items():
        means = torch.stack([output.mean((0, 2, 3)) for output in outputs]).mean(0)
        variances = torch.stack([output.transpose(0, 1).flatten(1).var(1) for output in outputs]).mean(0)
        torch.testing.assert_close(prepared.get_submodule(place).running_mean, means)
        torch.testing.assert_close(prepared.get_submodule(place).running_var, variances)
    changed = {name for name, tensor in prepared.state_dict().items() if not torch.equal(tensor, before[name])}
    assert all(name.startswith(("1.", "4.")) for name in changed)
    assert prepared.training
    assert prepared.get_submodule("1").training is not frozen


def test_without_batches_nothing_is_changed(prepared):
    before = prepared.get_submodule("1").running_mean.clone()

    with pytest.raises(InputError, match="no batches were given"):
        quaver.reestimate_batch_norm(prepared, [])

    assert torch.equal(prepared.get_submodule("1").running_mean, before)


def test_what_it_is_not_for_is_refused(prepared, images):
    with pytest.raises(StageError, match="in a frozen program, batch norms are part of the layers"):
        quaver.reestimate_batch_norm(quaver.convert(prepared), [images])
    with pytest.raises(InputError, match=r"takes a Program, not Linear.*update_bn"):
        quaver.reestimate_batch_norm(nn.Linear(1, 1), [images])
