"""Somebody with a training loop of their own, who does to the program what they always did to the model."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader

import quaver
from quaver.data import load_digits

pytestmark = pytest.mark.slow


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.layer1 = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.dropout(self.layer1(self.stem(x)).mean((2, 3))))


@pytest.fixture(scope="module")
def data():
    train, test = load_digits(size=8)
    batches = list(DataLoader(train, 64, drop_last=True))
    return batches, next(iter(DataLoader(test, len(test))))


def train(model, batches, *, lr=0.05, epochs=1, each_epoch=None, loss_of=None):
    """The loop, as it always was."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(epochs):
        model.train()
        if each_epoch is not None:
            each_epoch(model)
        for images, labels in batches:
            loss = F.cross_entropy(model(images), labels) if loss_of is None else loss_of(model, images, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model, test):
    images, labels = test
    return (model.eval()(images).argmax(1) == labels).float().mean().item()


@pytest.fixture(scope="module")
def trained(data):
    batches, _ = data
    torch.manual_seed(0)
    net = Net()
    train(net, batches, epochs=8)
    return net


@pytest.fixture
def student(trained, data):
    """The model, ready for quantization-aware training."""
    torch.manual_seed(0)
    return quaver.quant_aware(copy.deepcopy(trained), example_inputs=(data[0][0][0],))


def batch_norms(model):
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def test_fine_tuning_with_frozen_batch_norm_and_without_dropout(trained, student, data):
    batches, test = data

    def frozen(model):
        for module in batch_norms(model):
            module.eval()
        model.dropout.p = 0.0

    train(student, batches, lr=0.005, each_epoch=frozen)

    for before, after in zip(batch_norms(trained), batch_norms(student), strict=True):
        assert torch.equal(before.running_mean, after.running_mean)
        assert not torch.equal(before.weight, after.weight)
    int8 = quaver.convert(student.eval())
    assert accuracy(int8, test) == accuracy(student, test) > accuracy(trained, test) - 0.03


def test_averaged_weights_with_statistics_of_their_own(student, data):
    batches, test = data
    averaged = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def step_and_average(model, images, labels):
        averaged.update_parameters(model)
        return F.cross_entropy(model(images), labels)

    train(student, batches, loss_of=step_and_average)
    update_bn([images for images, _ in batches], averaged)
    by_torch = accuracy(averaged.module, test)
    quaver.reestimate_batch_norm(averaged.module, batches)

    assert by_torch > accuracy(student, test) - 0.03
    assert accuracy(averaged.module, test) > accuracy(student, test) - 0.03
    images = test[0]
    assert torch.equal(quaver.convert(averaged.module.eval())(images), averaged.module(images))


def test_distillation_of_features_from_the_float_model(trained, student, data):
    batches, test = data
    teacher = quaver.feature_extractor(quaver.capture(trained.eval(), (batches[0][0],)), ["stem", "layer1"])
    untaught = copy.deepcopy(student)

    def taught(model, images, labels, weight=10.0):
        logits, features = model(images)
        with torch.no_grad():
            _, wanted = teacher.eval()(images)
        distance = sum(F.mse_loss(features[name], wanted[name]) for name in features)
        distances[model].append(distance.item())
        return F.cross_entropy(logits, labels) + weight * distance

    models = [quaver.feature_extractor(one, ["stem", "layer1"]) for one in (student, untaught)]
    distances = {model: [] for model in models}
    for model, weight in zip(models, (10.0, 0.0), strict=True):
        quaver.freeze_batch_norm(model.program)
        train(model, batches, lr=0.005, loss_of=partial(taught, weight=weight))

    assert distances[models[0]][-1] < distances[models[1]][-1]
    assert accuracy(quaver.convert(student.eval()), test) > accuracy(trained, test) - 0.03


def test_looking_at_activations_with_hooks_while_it_trains(student, data):
    batches, test = data
    names, means = ("stem", "layer1", "layer1.0", "head"), {}

    def look(name):
        return lambda module, inputs, output: means.setdefault(name, []).append(output.mean())

    handles = [student.get_submodule(name).register_forward_hook(look(name)) for name in names]
    train(student, batches[:4])
    for handle in handles:
        handle.remove()
    expected = accuracy(student, test)

    assert {name: len(seen) for name, seen in means.items()} == dict.fromkeys(names, 4)
    assert accuracy(student, test) == expected
