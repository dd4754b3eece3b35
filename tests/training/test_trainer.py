import pytest
import torch
from torch import nn

import quaver
from quaver.training.classification import Classification
from quaver.training.schedules import learning_rate
from quaver.training.trainer import Trainer
from tiny import Heard, Kept, Noise, Tiny, assert_same_state, state_of, tiny_job, tiny_program


def trained(program=None, **options):
    job = tiny_job(program, **options)
    trainer = Trainer(job)
    trainer.run()
    return trainer


def test_training_makes_the_loss_smaller():
    heard = Heard()

    trained(tiny_program(quantized=False), num_epochs=4, listeners=(heard,))

    losses = [line.figures["loss"] for line in heard.lines]
    assert len(losses) == 16
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


def test_equal_jobs_end_with_equal_bits():
    one, other = trained().job.program, trained().job.program

    assert_same_state(state_of(one), state_of(other))


def test_the_seed_moves_dropout_and_with_it_the_result():
    one, other = (state_of(trained(seed=seed).job.program) for seed in (0, 1))

    assert not torch.equal(one["head.weight"], other["head.weight"])


def test_a_log_line_has_the_figures_of_its_batch_and_an_evaluation_those_of_the_test_set():
    heard = Heard()

    trainer = trained(num_epochs=1, listeners=(heard,), log_period=2)

    assert [line.at.batch for line in heard.lines] == [0, 2]
    assert heard.lines[0].figures.keys() == {"loss", "acc_top1", "lr"}  # of four classes, five guesses say nothing
    assert heard.lines[0].images_per_second > 0
    assert heard.evaluations[0].figures == trainer.state.metrics
    assert trainer.state.metrics["images"] == 16


def test_the_time_left_is_that_of_the_steps_to_come(monkeypatch):
    heard = Heard()
    trainer = Trainer(tiny_job(num_epochs=2, listeners=(heard,), log_period=2))
    monkeypatch.setattr("quaver.training.trainer.time.perf_counter", lambda: 60.0 * trainer.state.at.step)

    trainer.run()

    assert [line.seconds_left for line in heard.lines] == [60.0 * left for left in (7, 5, 3, 1)]
    assert heard.lines[0].of_batch().endswith("; time: 60.0000; eta: 0:07:00")


def test_the_figures_at_the_end_are_those_of_the_program_as_it_is():
    trainer = trained(ema=0.9, reestimate_bn=3)

    again = trainer.job.task.evaluate(trainer.job.program.clone(for_test=True), trainer.job.test)

    assert again == trainer.state.metrics


def test_no_epochs_still_give_figures():
    assert trained(num_epochs=0).state.metrics["images"] == 16


def test_training_ends_with_the_step_that_was_asked_for():
    heard = Heard()

    trainer = trained(max_iters=6, num_epochs=1, listeners=(heard,))

    assert [(line.at.epoch, line.at.batch) for line in heard.lines] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert trainer.state.at.step == 6
    assert heard.evaluations[-1].figures == trainer.state.metrics
    trainer.run()
    assert len(heard.lines) == 6  # it is over


def test_a_run_of_steps_goes_on_from_any_checkpoint_to_the_same_bits(tmp_path):
    kept = Kept(tmp_path)
    options = {"max_iters": 6, "checkpoint_period": 3}
    whole = trained(checkpoints=kept, **options).job.program

    for checkpoint in kept.all:
        job = tiny_job(**options)
        Trainer(job).run(checkpoint)
        assert_same_state(state_of(job.program), state_of(whole))
    assert [checkpoint.record["at"]["step"] for checkpoint in kept.all] == [0, 3, 4, 6]


def with_clips():
    torch.manual_seed(0)
    program = quaver.capture(Tiny(), (torch.zeros(1, 3, 8, 8),))
    return quaver.quant_aware(program, {"activation_preprocess_type": "PACT"})


def clips(program):
    return {name: value.clone() for name, value in program.named_parameters() if name.endswith("pact_threshold")}


def test_clips_learn_at_a_rate_of_their_own():
    still, moving = with_clips(), with_clips()
    start = clips(still)

    trained(still, pact_lr=0.0, pact_l2_decay=0.1, lr=0.1)
    trained(moving, pact_lr=0.1, pact_l2_decay=0.1, lr=0.0)

    assert all(torch.equal(value, start[name]) for name, value in clips(still).items())
    assert all(value < start[name] for name, value in clips(moving).items())  # what is not clipped at 20 only decays
    assert torch.equal(moving.state_dict()["stem.0.weight"], with_clips().state_dict()["stem.0.weight"])


def test_clips_decay_by_a_factor_of_their_own():
    none, much = with_clips(), with_clips()

    trained(none, pact_l2_decay=0.0, l2_decay=0.1)
    trained(much, pact_l2_decay=0.1, l2_decay=0.0)

    assert all(value == 20 for value in clips(none).values())
    assert all(value < 20 for value in clips(much).values())


def test_ranges_stay_from_the_epoch_on_that_freezes_them():
    moving, frozen, one = (
        trained(num_epochs=epochs, freeze_observers_epoch=epoch, lr_strategy="constant").job.program
        for epochs, epoch in ((2, -1), (2, 1), (1, -1))
    )

    def ranges(program):
        return {name: q.threshold for name, q in program.quantizers() if name not in program.placements.weights}

    assert all(ranges(frozen)[name] == ranges(one)[name] for name in ranges(one))
    assert any(ranges(frozen)[name] != ranges(moving)[name] for name in ranges(moving))


def test_statistics_stay_from_the_epoch_on_that_freezes_them_and_weights_go_on():
    frozen, one = (
        state_of(trained(num_epochs=epochs, freeze_bn_epoch=1, lr_strategy="constant").job.program) for epochs in (2, 1)
    )

    assert torch.equal(frozen["stem.1.running_mean"], one["stem.1.running_mean"])
    assert torch.equal(frozen["stem.1.num_batches_tracked"], one["stem.1.num_batches_tracked"])
    assert not torch.equal(frozen["stem.0.weight"], one["stem.0.weight"])


def test_reestimated_statistics_are_the_mean_over_the_batches_that_were_asked_for():
    program = tiny_program(quantized=False)
    batches = Noise(3)

    trained(program, num_epochs=0, reestimate_bn=3, batches=batches)

    outputs = [
        nn.functional.conv2d(images, program.state_dict()["stem.0.weight"], padding=1) for images, _ in batches.epoch(0)
    ]
    mean = torch.stack([x.mean((0, 2, 3)) for x in outputs]).mean(0)
    var = torch.stack([x.transpose(0, 1).flatten(1).var(1) for x in outputs]).mean(0)
    assert torch.allclose(program.state_dict()["stem.1.running_mean"], mean, atol=1e-6)
    assert torch.allclose(program.state_dict()["stem.1.running_var"], var, rtol=1e-5)


def test_the_figures_of_an_epoch_are_those_that_the_result_would_have_if_training_ended_there():
    heard, options = Heard(), {"ema": 0.9, "reestimate_bn": 3, "lr_strategy": "constant"}

    trained(num_epochs=2, listeners=(heard,), **options)

    assert heard.evaluations[0].figures == trained(num_epochs=1, **options).state.metrics


def test_reestimating_for_an_epochs_figures_leaves_training_as_it_was():
    trainers = [Trainer(tiny_job(num_epochs=2, ema=0.9, reestimate_bn=batches)) for batches in (0, 3)]

    for trainer in trainers:
        torch.manual_seed(0)
        trainer._epoch()

    plain, anew = (trainer.state for trainer in trainers)
    assert plain.metrics != anew.metrics
    assert_same_state(*(state_of(trainer.job.program) for trainer in trainers))
    assert_same_state(plain.average.values, anew.average.values)


def test_reestimating_moves_no_range():
    plain, anew = (trained(reestimate_bn=batches).job.program for batches in (0, 2))

    assert all(
        plain.quantizer(name).threshold.equal(q.threshold)
        for name, q in anew.quantizers()
        if q.kind != "channel_wise_abs_max"
    )


def test_an_average_follows_the_weights_and_is_the_result():
    plain = state_of(trained(num_epochs=3, lr=0.1).job.program)
    averaged = state_of(trained(num_epochs=3, lr=0.1, ema=0.9).job.program)
    start = state_of(tiny_program())

    def away(state):
        return (state["stem.0.weight"] - start["stem.0.weight"]).norm()

    assert 0 < away(averaged) < away(plain)


def test_clipped_gradients_move_weights_by_at_most_the_rate_times_the_norm():
    program = tiny_program()
    before = state_of(program)

    trained(program, num_epochs=1, batches=Noise(1), clip_norm=0.01, lr=1.0, l2_decay=0.0, lr_strategy="constant")

    moved = torch.cat([(p - before[name]).flatten() for name, p in program.named_parameters()]).norm()
    assert 0 < moved <= 0.0101  # and float32's rounding of the sum


OPTIMIZERS = {
    "momentum": ({"momentum_rate": 0.8}, lambda p: torch.optim.SGD(p, 0.01, momentum=0.8, weight_decay=0.1)),
    "nesterov": (
        {"momentum_rate": 0.8, "nesterov": True},
        lambda p: torch.optim.SGD(p, 0.01, momentum=0.8, nesterov=True, weight_decay=0.1),
    ),
    "adamw": (
        {"momentum_rate": 0.8, "optimizer": "adamw"},
        lambda p: torch.optim.AdamW(p, 0.01, betas=(0.8, 0.999), weight_decay=0.1),
    ),
}


@pytest.mark.parametrize(("options", "made"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_are_those_of_torchs_optimizer_with_the_same_options(options, made):
    program, twin = tiny_program(quantized=False), tiny_program(quantized=False).train()
    optimizer = made(twin.parameters())

    job = trained(program, num_epochs=1, lr=0.01, l2_decay=0.1, lr_strategy="constant", **options).job
    torch.manual_seed(job.seed)
    for images, labels in job.batches.epoch(0):
        optimizer.zero_grad()
        job.task.loss(twin(images), labels).backward()
        optimizer.step()

    assert_same_state(state_of(program), state_of(twin))


@pytest.mark.parametrize("steps_per_epoch", [0, 16])
def test_the_learning_rate_falls_as_its_schedule_says_over_the_steps_that_it_counts(steps_per_epoch):
    heard = Heard()

    job = trained(num_epochs=2, lr=0.1, steps_per_epoch=steps_per_epoch, listeners=(heard,)).job

    rates = [line.figures["lr"] for line in heard.lines]
    assert rates == [learning_rate(job.phase, step, steps_per_epoch or 4) for step in range(8)]
    assert rates[0] > rates[-1] > 0


def test_label_smoothing_is_the_tasks():
    task = tiny_job().task

    assert tiny_job(task=type(task)(label_smoothing=0.1)).task.loss(torch.eye(4), torch.arange(4)) > task.loss(
        torch.eye(4), torch.arange(4)
    )


def test_learning_from_the_float_model_alone_needs_no_right_labels():
    class Wrong(Noise):
        def epoch(self, k, start=0):
            for images, labels in super().epoch(k, start):
                yield images, torch.zeros_like(labels)

    teacher = trained(tiny_program(quantized=False), num_epochs=12, lr=0.05)
    wise = teacher.job.program.eval()

    def top1(distill):
        student = tiny_program()
        student.load_state_dict(wise.state_dict(), strict=False)
        return trained(student, batches=Wrong(), teacher=wise, distill=distill, lr=0.05, num_epochs=8).state.metrics["top1"]

    assert top1(0.0) < teacher.state.metrics["top1"] - 0.5
    assert top1(1.0) > teacher.state.metrics["top1"] - 0.1


@pytest.mark.parametrize(("bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_bf16_computes_in_it_and_keeps_weights_and_thresholds_in_float32(bf16, dtype):
    computed = set()

    class Asked(Classification):
        def loss(self, output, target):
            computed.add(output.dtype)
            return super().loss(output, target)

    program = trained(bf16=bf16, task=Asked()).job.program

    assert computed == {dtype}
    assert {tensor.dtype for tensor in program.state_dict().values() if tensor.is_floating_point()} == {torch.float32}
    assert all(torch.isfinite(tensor).all() for tensor in program.state_dict().values())


def test_parameters_of_custom_functions_go_to_the_optimizer_that_optimizer_func_makes():
    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.limit = nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return torch.minimum(x, self.limit)

    made = []

    def adam(parameters):
        made.append(torch.optim.Adam(parameters, lr=0.1))
        return made[-1]

    program = quaver.quant_aware(tiny_program(quantized=False), act_preprocess_func=Clip, optimizer_func=adam)

    trained(program)

    assert len(made) == 1
    assert all(float(limit.detach()) != 2.0 for limit in list(program.quantizer_parameters())[:2])


def test_evaluating_in_training_leaves_the_program_in_training_mode_and_warns_of_nothing():
    trainer = trained()

    assert trainer.job.program.training


@pytest.mark.parametrize("quantized", [True, False])
def test_a_trained_program_converts(quantized):
    program = trained(tiny_program(quantized=quantized)).job.program
    if not quantized:
        program = trained(quaver.quant_aware(program)).job.program

    frozen = quaver.convert(program)

    images, _ = next(Noise().epoch(0))
    assert torch.equal(frozen(images), program.clone(for_test=True)(images))


def test_no_epoch_begins_once_the_figures_are_enough():
    heard = Heard()

    trainer = trained(num_epochs=3, enough=lambda figures: figures.get("images") == 16, listeners=(heard,))

    assert len(heard.evaluations) == 1
    assert trainer.state.at.epoch == 1
