import pytest
import torch
from torch import nn

import quaver
from quaver.errors import TrainingError
from quaver.training.checkpoint import Checkpoints
from quaver.training.trainer import ROLLBACKS, Trainer
from quaver.training.watchdog import Watchdog
from tiny import Heard, Noise, assert_same_state, state_of, tiny_job, tiny_program


def seen(program, images=None, batches=2):
    """The program after some batches of training."""
    program.train()
    for images, _ in Noise(batches).epoch(0):
        program(images)
    return program


@pytest.fixture
def images():
    return next(Noise().epoch(0))[0]


def first_range(program):
    return next(q for name, q in program.quantizers() if name not in program.placements.weights)


def name_of(program, quantizer):
    return next(name for name, q in program.quantizers() if q is quantizer)


# what it sees


def test_good_training_gives_no_alarm(images):
    program = seen(tiny_program())
    dog = Watchdog(program)

    for _ in range(3):
        dog.note(torch.tensor(1.0))
        assert dog.look(images) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_seen_at_the_next_look_even_if_later_ones_are(images, value):
    dog = Watchdog(seen(tiny_program()))
    for loss in (1.0, value, 1.0):
        dog.note(torch.tensor(loss))

    problem = dog.look(images)

    assert "the loss is NaN or Inf" in problem
    assert "lower --lr" in problem
    assert dog.look(images) is None


def test_nan_in_a_tensor_names_the_first_in_the_order_of_the_graph(images):
    program = seen(tiny_program())
    dog = Watchdog(program)
    program(torch.full_like(images, float("nan")))

    problem = dog.look(images)

    assert f"NaN or Inf in {name_of(program, first_range(program))!r} and" in problem
    assert "PACT or thresholds from an analysis" in problem


def test_nan_in_a_weight_names_it(images):
    program = seen(tiny_program())
    dog = Watchdog(program)
    with torch.no_grad():
        program.get_parameter("head.weight")[0, 0] = float("nan")

    assert "NaN or Inf in the weight 'head.weight'" in dog.look(images)


@pytest.mark.parametrize(("times", "alarm"), [(5, False), (20, True)])
def test_a_range_that_leaps_is_named_with_what_it_was(images, times, alarm):
    program = seen(tiny_program())
    dog = Watchdog(program)
    assert dog.look(images) is None
    quantizer = first_range(program)
    before = float(quantizer.threshold)
    quantizer.accum.mul_(times)

    problem = dog.look(images)

    expected = f"the range of {name_of(program, quantizer)!r} exploded, from {before:.4g} to {times * before:.4g}"
    assert problem.startswith(expected) if alarm else problem is None


def test_a_range_that_creeps_up_to_a_hundred_times_is_seen_too(images):
    program = seen(tiny_program())
    dog = Watchdog(program)
    dog.look(images)
    problems = []
    for _ in range(3):
        first_range(program).accum.mul_(5)
        problems.append(dog.look(images))

    assert problems[:2] == [None, None]
    assert "exploded" in problems[2]


def test_a_dead_tensor_is_named_when_it_is_still_dead_at_the_second_look(images):
    program = seen(tiny_program())
    with torch.no_grad():
        program.get_parameter("stem.1.weight").zero_()
        program.get_parameter("stem.1.bias").fill_(-1.0)
    dog = Watchdog(program)

    assert dog.look(images) is None
    assert "'stem.2.output' is dead: all of it is zero" in dog.look(images)


def test_a_tensor_that_is_mostly_cut_off_is_named_with_the_share(images):
    program = seen(tiny_program())
    quantizer = first_range(program)
    quantizer.accum.mul_(0.01)
    dog = Watchdog(program)

    assert dog.look(images) is None
    problem = dog.look(images)
    assert f"% of {name_of(program, quantizer)!r} lies beyond its range of ±" in problem
    assert "PACT" in problem


def test_one_bad_look_between_good_ones_is_forgiven(images):
    program = seen(tiny_program())
    quantizer = first_range(program)
    dog, usual = Watchdog(program), quantizer.accum.clone()
    for accum in (usual * 0.2, usual, usual * 0.2):
        quantizer.accum.copy_(accum)
        assert dog.look(images) is None


def test_a_float_program_has_no_ranges_to_look_at_but_its_loss_and_weights(images):
    dog = Watchdog(tiny_program(quantized=False))
    dog.note(torch.tensor(float("nan")))

    assert "the loss is NaN" in dog.look(images)


def test_a_look_changes_nothing(images):
    program = seen(tiny_program())
    before, random = state_of(program), torch.get_rng_state()

    Watchdog(program).look(images)

    assert_same_state(state_of(program), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert program.training


def test_between_looks_it_hears_of_no_tensor(images):
    program = tiny_program()
    dog = Watchdog(program)

    program.train()(images)
    program.clone().train()(images)
    heard = dict(dog.probe.seen)
    dog.look(images)

    assert heard == {}
    assert {"x", "stem.2.output"} <= dog.probe.seen.keys()


def test_custom_quantizers_are_left_alone(images):
    program = quaver.quant_aware(tiny_program(quantized=False), act_quantize_func=nn.Identity)

    assert Watchdog(seen(program)).look(images) is None


# what is done about it


class Exploding(Noise):
    """From its third batch on, images that are far too large; ``times`` says in how many turns."""

    def __init__(self, times=99):
        super().__init__(batches=6)
        self.turns, self.times = 0, times

    def epoch(self, k, start=0):
        for index, (images, labels) in enumerate(super().epoch(k, start), start):
            bad = index == 2 and self.turns < self.times
            self.turns += bad
            yield images * (1e6 if bad else 1), labels


def job(**options):
    return tiny_job(num_epochs=1, watchdog_period=1, checkpoint_period=2, **options)


def test_stop_ends_training_with_the_place_the_tensor_and_a_way_out(tmp_path):
    with pytest.raises(TrainingError, match=r"quantize: epoch 0, batch 3: the range of 'x' exploded, .*Try a lower --lr"):
        Trainer(job(batches=Exploding(), checkpoints=Checkpoints(tmp_path))).run()


def test_no_checkpoint_is_written_of_a_state_that_went_wrong(tmp_path):
    with pytest.raises(TrainingError):
        Trainer(job(batches=Exploding(), checkpoints=Checkpoints(tmp_path))).run()

    assert Checkpoints(tmp_path).names() == ["quantize-000000000", "quantize-000000002"]


def test_rollback_goes_back_to_the_checkpoint_and_lowers_the_rate(tmp_path):
    heard = Heard()
    rolling = job(
        batches=Exploding(times=2),
        checkpoints=Checkpoints(tmp_path),
        watchdog="rollback",
        listeners=(heard,),
        lr_strategy="constant",
    )

    trainer = Trainer(rolling)
    trainer.run()

    rates = {(line.at.batch, line.figures["lr"]) for line in heard.lines}
    assert {(1, 0.005), (2, 0.005), (2, 0.0025), (2, 0.00125), (5, 0.00125)} <= rates
    assert len(trainer.state.rollbacks) == 2
    assert "rolled back to epoch 0, batch 2; learning rate times 0.25" in heard.words[-1]


def test_a_run_that_goes_wrong_again_and_again_stops_in_the_end(tmp_path):
    batches = Exploding()

    with pytest.raises(TrainingError, match=f"{ROLLBACKS} rollbacks did not help"):
        Trainer(job(batches=batches, checkpoints=Checkpoints(tmp_path), watchdog="rollback")).run()

    assert batches.turns == 1 + ROLLBACKS


def test_warn_says_it_and_goes_on():
    heard = Heard()

    Trainer(job(batches=Exploding(times=1), watchdog="warn", listeners=(heard,))).run()

    assert any("exploded" in words for words in heard.words)
    assert heard.lines[-1].at.batch == 5


def test_off_does_not_look():
    heard = Heard()

    Trainer(job(batches=Exploding(), watchdog="off", listeners=(heard,))).run()

    assert heard.words == []


def test_it_looks_as_often_as_it_is_told_and_at_the_end_of_an_epoch(monkeypatch):
    looks = []
    monkeypatch.setattr(Watchdog, "look", lambda self, images: looks.append(1))

    Trainer(tiny_job(num_epochs=1, batches=Noise(10), watchdog_period=4)).run()

    assert len(looks) == 3
