"""A net and data that train in milliseconds, and a job made of them."""

import copy
from dataclasses import replace
from functools import cache

import torch
from torch import nn

import quaver
from quaver.config.recipe import Phase, QuantPhase
from quaver.training.checkpoint import Checkpoints
from quaver.training.classification import Classification
from quaver.training.job import Job
from quaver.training.listener import Listener


class Kept(Checkpoints):
    """Keeps every checkpoint as it would be read back, in memory."""

    def __init__(self, folder):
        super().__init__(folder)
        object.__setattr__(self, "all", [])

    def save(self, checkpoint):
        super().save(checkpoint)
        self.all.append(self.read(checkpoint.name))


class Tiny(nn.Module):
    """Convolution, batch norm, a residual addition, dropout: what a state can hide in."""

    def __init__(self, num_classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.body(x) + x)
        return self.head(self.drop(x.mean((2, 3))))


def net(num_classes=4):
    """For the command line: ``--model tiny:net``."""
    return Tiny(num_classes)


class Noise:
    """Batches of noise with a class in it, the same for the same epoch."""

    def __init__(self, batches=4, size=8, scale=1.0):
        self.batches, self.size, self.scale = batches, size, scale

    def __len__(self):
        return self.batches

    def epoch(self, k, start=0):
        for batch in range(start, self.batches):
            generator = torch.Generator().manual_seed(1000 * k + batch)
            labels = torch.randint(0, 4, (self.size,), generator=generator)
            images = torch.randn(self.size, 3, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1)
            yield images * self.scale, labels


class Heard(Listener):
    """Remembers what it heard."""

    def __init__(self):
        self.lines, self.evaluations, self.words = [], [], []

    def logged(self, line):
        self.lines.append(line)

    def evaluated(self, line):
        self.evaluations.append(line)

    def notified(self, words):
        self.words.append(words)


def tiny_program(*, quantized=True):
    """A program of its own, every time with the same weights."""
    return copy.deepcopy(_made(quantized))


@cache
def _made(quantized):
    torch.manual_seed(0)
    program = quaver.capture(Tiny(), (torch.zeros(1, 3, 8, 8),))
    return quaver.quant_aware(program) if quantized else program


def tiny_job(program=None, /, **changes):
    """A job on the tiny net; options of a phase and of a job mixed."""
    quantized = program is None or program.stage is quaver.Stage.PREPARED
    phase = QuantPhase(num_epochs=2) if quantized else Phase(num_epochs=2)
    options = {name: changes.pop(name) for name in list(changes) if hasattr(phase, name)}
    job = Job(
        name="quantize" if quantized else "float",
        program=tiny_program() if program is None else program,
        task=Classification(),
        phase=replace(phase, **options),
        batches=Noise(),
        test=Noise(2),
        log_period=1,
    )
    return replace(job, **changes)


def state_of(program):
    return {name: tensor.clone() for name, tensor in program.state_dict().items()}


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert different == []
