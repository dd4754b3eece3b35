"""Learning from the float model: a step of it, written out by hand, and who the teacher is."""

import copy

import pytest
import torch
from safetensors.torch import load_file

import quaver
from quaver.data import Loader
from quaver.experiment.components import build_components
from quaver.experiment.start import start
from quaver.experiment.training_run import TrainingRun
from quaver.training.ranks import Ranks
from quaver.training.trainer import Trainer
from tiny import Noise, assert_same_state, state_of, tiny_job, tiny_program

RATE, D, T = 0.1, 0.3, 3.0


@pytest.fixture
def teacher():
    """A float model that knows something, and is left in training."""
    program = tiny_program(quantized=False)
    Trainer(tiny_job(program, num_epochs=3, lr=0.1)).run()
    return program.train()


def one_step(program, **options):
    plain = {"momentum_rate": 0.0, "l2_decay": 0.0, "lr_strategy": "constant", "lr": RATE, "num_epochs": 1}
    Trainer(tiny_job(program, batches=Noise(1), test=None, **(plain | options))).run()


def by_hand(program, teacher, d, temperature):
    """The weights after a step down the gradient of the documented loss, in plain terms."""
    (images, labels), *_ = Noise(1).epoch(0)
    torch.manual_seed(0)  # dropout's
    logits = program.train()(images)
    with torch.no_grad():
        wise = copy.deepcopy(teacher).eval()(images)
    right = logits.log_softmax(1)[torch.arange(len(labels)), labels]
    p, q = (wise / temperature).softmax(1), (logits / temperature).softmax(1)
    divergence = (p * (p.log() - q.log())).sum(1)
    loss = (1 - d) * -right.mean() + d * temperature**2 * divergence.mean()
    loss.backward()
    return {name: (p - RATE * p.grad).detach() for name, p in program.named_parameters()}


@pytest.mark.parametrize(("d", "temperature"), [(D, T), (1.0, 1.0)])
def test_a_step_goes_down_the_gradient_of_the_documented_loss(teacher, d, temperature):
    program = tiny_program()
    expected = by_hand(tiny_program(), teacher, d, temperature)

    one_step(program, teacher=teacher, distill=d, distill_temperature=temperature)

    for name, parameter in program.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)  # float32, other formulas


def test_another_teacher_teaches_another_step_and_none_the_labels_alone(teacher):
    programs = [tiny_program() for _ in range(4)]

    one_step(programs[0], teacher=teacher, distill=D)
    one_step(programs[1], teacher=tiny_program(quantized=False), distill=D)
    one_step(programs[2], teacher=teacher, distill=0.0)
    one_step(programs[3])

    heads = [program.state_dict()["head.weight"] for program in programs]
    assert (heads[0] - heads[1]).abs().max() > 1e-3
    assert (heads[0] - heads[2]).abs().max() > 1e-3
    assert torch.equal(heads[2], heads[3])


def test_the_teacher_stays_as_it_is(teacher):
    before = state_of(teacher)

    Trainer(tiny_job(teacher=teacher, distill=D)).run()

    assert_same_state(before, state_of(teacher))
    assert not teacher.training


def test_in_a_run_the_teacher_is_the_float_model_that_quantization_starts_from(tmp_path, monkeypatch):
    jobs = []

    class Seen(Trainer):
        def __init__(self, job, stop):
            super().__init__(job, stop)
            jobs.append(job)

    monkeypatch.setattr("quaver.experiment.training_run.Trainer", Seen)
    flags = {"model": "tiny:net", "image_shape": "3,8,8", "batch_size": "256", "use_gpu": "false", "distill": "0.5"}
    flags |= {"float_epochs": "1", "num_epochs": "1", "lr": "0.1", "model_save_dir": str(tmp_path)}
    begun = start("quantize", None, flags, "", print)

    _, after = TrainingRun(begun, build_components(begun.recipe, Ranks())).to_int8()

    float_job, quantize_job = jobs
    teacher = quantize_job.teacher
    assert float_job.teacher is None
    assert teacher.stage is quaver.Stage.FLOAT
    assert not teacher.training
    assert_same_state(load_file(tmp_path / "fp32.safetensors"), state_of(teacher))
    assert not torch.equal(teacher.state_dict()["head.weight"], after.program.state_dict()["head.weight"])
    images, _ = next(iter(Loader(quantize_job.test.dataset, 8, shuffle=False).epoch(0)))
    assert torch.equal(teacher(images), teacher(images))  # no dropout
