"""Recordings, with a stand-in for CUDA graphs: what was recorded runs again, and writes where it wrote."""

import pytest
import torch
from torch import nn

from quaver.errors import ConfigError, QuaverWarning
from quaver.quantizers import MovingAverageAbsMax
from quaver.quantizers.switches import disable_observer
from quaver.training import RecordedStep, recorded_step
from quaver.training.recorded_step import WARM_UP


class Replay:
    """A graph: the job once more, its results and gradients written into the tensors of the first time."""

    def __init__(self, job, model):
        self.job, self.model, self.count = job, model, 0
        self.given, self.gradients = self._run()

    def _run(self):
        given = self.job()
        return given, [parameter.grad for parameter in self.model.parameters()]

    def replay(self):
        self.count += 1
        before = [parameter.grad for parameter in self.model.parameters()]
        for place, value in zip(self.gradients, self._run()[1], strict=True):
            place.copy_(value)
        for parameter, gradient in zip(self.model.parameters(), before, strict=True):
            parameter.grad = gradient  # a graph writes to memory, and knows no parameters


@pytest.fixture
def replays(monkeypatch):
    """All recordings made, and CPU tensors to make them of."""
    made = []
    model = []

    def record(job):
        made.append(Replay(job, model[0]))
        return made[-1], made[-1].given

    monkeypatch.setattr(recorded_step, "record", record)
    monkeypatch.setattr(recorded_step, "recordable", lambda tensor: True)
    monkeypatch.setattr(recorded_step, "beside", lambda job: job())

    def step(net, compute):
        model.append(net)
        return RecordedStep(compute, net)

    return made, step


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 4), MovingAverageAbsMax(narrow=False), nn.BatchNorm1d(4), nn.Dropout(0.0), nn.Linear(4, 1)
    )


def gradients(net):
    return [parameter.grad.clone() for parameter in net.parameters()]


def test_after_some_steps_as_they_are_one_is_recorded_and_the_others_replay_it(replays):
    made, step_of = replays
    net = network()
    step = step_of(net, lambda x: net(x).square().mean())

    for _ in range(WARM_UP):
        step(torch.ones(2, 3))
    assert made == []
    for _ in range(4):
        step(torch.ones(2, 3))

    assert [replay.count for replay in made] == [4]


def test_gradients_are_of_this_call_and_come_back_when_somebody_takes_them_away(replays):
    _, step_of = replays
    net = nn.Linear(3, 1)
    step = step_of(net, lambda x: net(x).square().mean())
    for k in range(WARM_UP + 3):
        x = torch.full((2, 3), float(k))
        expected = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))

        step(x)

        assert all(map(torch.equal, gradients(net), expected))
        net.zero_grad(set_to_none=True)


def test_other_shapes_have_a_recording_of_their_own_and_a_third_is_computed_as_it_is(replays):
    made, step_of = replays
    net = nn.Linear(3, 1)
    step = step_of(net, lambda x: net(x).square().mean())

    for count in (2, 3, 4):
        for _ in range(WARM_UP + 2):
            step(torch.ones(count, 3))

    assert [replay.count for replay in made] == [2, 2]
    assert net.weight.grad is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net[2].eval(),
        lambda net: net.apply(disable_observer),
        lambda net: setattr(net[2], "momentum", 0.3),
        lambda net: setattr(net[3], "p", 0.5),
        lambda net: setattr(net[0].weight, "data", net[0].weight.data.clone()),
    ],
    ids=["mode", "observer", "momentum", "dropout", "place"],
)
def test_what_is_set_otherwise_is_recorded_anew(replays, change):
    made, step_of = replays
    net = network()
    step = step_of(net, lambda x: net(x).square().mean())
    for _ in range(WARM_UP + 1):
        step(torch.randn(4, 3))

    change(net)
    for _ in range(2):
        step(torch.randn(4, 3))

    assert [replay.count for replay in made] == [1, 2]


def test_a_buffer_that_was_replaced_is_where_the_recording_writes_it(replays):
    _, step_of = replays
    net = network()
    step = step_of(net, lambda x: net(x).square().mean())
    for _ in range(WARM_UP + 1):
        step(torch.randn(4, 3))
    place = net[1].accum

    net[1].accum = torch.tensor([7.0])
    before = net[1].accum.clone()
    step(torch.zeros(4, 3))

    assert net[1].accum is place
    assert place != before


def test_what_the_function_gives_beside_the_loss_comes_back_detached(replays):
    _, step_of = replays
    net = nn.Linear(3, 1)
    step = step_of(net, lambda x: (net(x).mean(), {"output": net(x)}))
    for _ in range(WARM_UP + 2):
        loss, others = step(torch.ones(2, 3))

    assert not loss.requires_grad
    assert not others["output"].requires_grad


def test_what_cannot_be_recorded_is_computed_as_it_is_and_said_once(replays, monkeypatch):
    _, step_of = replays
    net = network()
    step, place = step_of(net, lambda x: net(x).square().mean()), net[1].accum

    def record(job):
        net[1].accum = torch.zeros(1)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(recorded_step, "record", record)
    for _ in range(WARM_UP):
        step(torch.randn(4, 3))
    with pytest.warns(QuaverWarning, match="cannot be recorded.*not permitted when stream is capturing$"):
        step(torch.randn(4, 3))

    step(torch.randn(4, 3))
    assert net[1].accum is place
    assert net[0].weight.grad is not None


def test_on_the_processor_nothing_is_recorded():
    net = nn.Linear(3, 1)
    step = RecordedStep(lambda x: net(x).mean(), net)

    for _ in range(WARM_UP + 2):
        step(torch.ones(2, 3))

    assert step._recordings == {}
    assert torch.equal(net.weight.grad, torch.ones(1, 3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda net, x: {"loss": net(x).mean()}, "gave a dict where"),
        (lambda net, x: net(x), r"a tensor of shape \[2, 1\] where"),
        (lambda net, x: net(x).mean().detach(), r"shape \[\] without a gradient where"),
        (lambda net, x: (), "gave a tuple where"),
    ],
)
def test_what_is_no_loss_is_refused(given, words):
    net = nn.Linear(3, 1)

    with pytest.raises(ConfigError, match=words):
        RecordedStep(lambda x: given(net, x), net)(torch.ones(2, 3))
