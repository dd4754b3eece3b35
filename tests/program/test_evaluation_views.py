"""``clone(for_test=True)``: another program over the same state, always in evaluation."""

import copy
import gc
import weakref

import pytest
import torch

import quaver
from quaver.errors import StageError
from quaver.quantizers import PACT


def state_of(program: quaver.Program) -> list[tuple[str, int]]:
    return [(name, id(tensor)) for name, tensor in (*program.named_parameters(), *program.named_buffers())]


def test_a_view_shares_every_parameter_buffer_and_quantizer_state(trained):
    view = trained.clone(for_test=True)

    assert state_of(view) == state_of(trained)
    assert [name for name, _ in view.quantizers()] == [name for name, _ in trained.quantizers()]


def test_a_view_resets_nothing(trained):
    before = [record.thresholds for record in trained.ops()]

    view = trained.clone(for_test=True)

    assert [record.thresholds for record in trained.ops()] == before
    assert [record.thresholds for record in view.ops()] == before
    assert any(threshold[0] > 0 for thresholds in before for threshold in thresholds.values())


@pytest.mark.parametrize("stage", ["float", "prepared", "trained", "frozen", "int8", "mobile"])
def test_a_view_computes_what_the_program_computes_in_evaluation(stages, images, stage):
    program = copy.deepcopy(stages[stage])

    given = program.clone(for_test=True)(images)

    assert torch.equal(given, program.eval()(images))


def test_a_view_is_in_evaluation_while_the_program_trains(trained, images):
    trained.train()

    view = trained.clone(for_test=True)

    assert trained.training
    assert not any(module.training for module in view.modules())
    assert torch.equal(view(images), view(images))


def test_a_view_stays_in_evaluation_when_the_program_is_switched(trained):
    view = trained.clone(for_test=True)

    trained.eval()
    trained.train()

    assert not any(module.training for module in view.modules())


def test_evaluating_through_a_view_moves_no_threshold_and_no_statistics(trained, images):
    trained.train()
    view = trained.clone(for_test=True)
    before = {name: value.clone() for name, value in trained.state_dict().items()}

    view(100 * images)

    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


def test_a_view_sees_later_training(prepared, images, train):
    view = prepared.clone(for_test=True)
    before = view(images)

    train(prepared)

    after = view(images)
    assert not torch.equal(after, before)
    assert torch.equal(after, prepared.eval()(images))
    assert view.unseen() == []


def test_a_view_sees_a_loaded_state_dict(trained, images):
    view = trained.clone(for_test=True)
    halved = {name: value / 2 if value.is_floating_point() else value for name, value in trained.state_dict().items()}

    trained.load_state_dict(halved)

    assert all(torch.equal(value, halved[name]) for name, value in view.state_dict().items())
    assert torch.equal(view(images), trained.eval()(images))


def test_a_view_sees_a_move(trained, images):
    view = trained.clone(for_test=True)

    trained.to(torch.float64)

    assert {parameter.dtype for parameter in view.parameters()} == {torch.float64}
    assert state_of(view) == state_of(trained)
    assert torch.equal(view(images.double()), trained.eval()(images.double()))


def test_eval_on_a_view_does_not_switch_the_program(trained):
    trained.train()
    modes = [module.training for module in trained.modules()]
    view = trained.clone(for_test=True)

    view.eval()

    assert [module.training for module in trained.modules()] == modes
    assert all(modes)


def test_train_on_a_view_is_refused(trained):
    view = trained.clone(for_test=True)

    with pytest.raises(StageError, match=r"evaluation view: call \.train\(\) on the program it was cloned from"):
        view.train()
    assert not view.training


def test_switches_of_a_view_are_its_own(trained, images):
    view = trained.clone(for_test=True)
    rounded = view(images)

    trained.apply(quaver.disable_fake_quant)

    assert torch.equal(view(images), rounded)
    assert not torch.equal(trained.eval()(images), rounded)


def test_hooks_of_a_view_are_its_own_and_begin_with_those_of_the_program(trained, images):
    heard = []
    trained.apply(lambda module: module.register_forward_pre_hook(lambda *_: heard.append("before")))
    view = trained.clone()

    view.apply(lambda module: module.register_forward_pre_hook(lambda *_: heard.append("view")))
    trained.train()(images)
    by_program = set(heard)
    heard.clear()
    view.train()(images)

    assert by_program == {"before"}
    assert set(heard) == {"before", "view"}


def test_a_view_of_a_view_is_a_view(trained, images):
    view = trained.clone(for_test=True)

    again = view.clone(for_test=True)

    assert again.for_test
    assert torch.equal(again(images), view(images))


def test_a_clone_that_is_no_view_shares_state_and_trains(prepared, images):
    twin = prepared.clone()

    twin.train()(images)

    assert state_of(twin) == state_of(prepared)
    assert prepared.unseen() == []


def test_passes_are_refused_on_a_view_with_the_way_out(trained):
    view = trained.clone(for_test=True)

    with pytest.raises(StageError, match=r"evaluation view\. Apply passes to the program it was cloned from"):
        quaver.passes.QuantizationFreezePass().apply(view)


def test_convert_takes_a_view(trained, images):
    view = trained.clone(for_test=True)

    assert torch.equal(quaver.convert(view)(images), quaver.convert(trained)(images))


@pytest.mark.parametrize("stage", ["frozen", "int8", "mobile"])
def test_train_on_a_program_of_integers_is_refused(stages, stage):
    with pytest.raises(StageError, match=f"a {stage} program cannot be trained"):
        stages[stage].train()


# quant_aware(program, for_test=True)


def test_for_test_after_training_shares_the_trained_state(program, images, train):
    trained = quaver.quant_aware(program)
    train(trained)

    view = quaver.quant_aware(program, for_test=True)

    assert view.for_test
    assert state_of(view) == state_of(trained)
    assert view.unseen() == []
    assert torch.equal(view(images), trained.eval()(images))


def test_for_test_before_training_sees_the_training(program, images, train):
    trained = quaver.quant_aware(program)
    view = quaver.quant_aware(program, for_test=True)

    train(trained)

    assert view.unseen() == []
    assert torch.equal(view(images), trained.eval()(images))


def test_for_test_may_come_first(program, images, train):
    view = quaver.quant_aware(program, for_test=True)
    trained = quaver.quant_aware(program)

    train(trained)

    assert view.unseen() == []
    assert torch.equal(view(images), trained.eval()(images))


def test_for_test_on_the_prepared_program_is_a_view_of_it(trained, images):
    view = quaver.quant_aware(trained, for_test=True)

    assert view.for_test
    assert state_of(view) == state_of(trained)


def test_for_test_resets_nothing(program, train):
    trained = quaver.quant_aware(program)
    train(trained)
    before = trained.ops()

    quaver.quant_aware(program, for_test=True)

    assert trained.ops() == before


def test_quant_aware_twice_is_refused(prepared):
    with pytest.raises(StageError, match=r"the program is prepared already\. Train it and call quaver\.convert"):
        quaver.quant_aware(prepared)


# all that a program is made from


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def own(x):
    return x


CONFIG = {"weight_bits": 4}
CLIPPED = {"act_preprocess_func": PACT, "weight_preprocess_func": PACT}


def quantizers_of(program: quaver.Program) -> list[tuple]:
    return [(name, one.options(), type(one.preprocess)) for name, one in program.quantizers()]


@pytest.mark.parametrize("view_first", [True, False])
def test_both_orders_give_the_same_programs(program, images, train, view_first):
    alone = quaver.quant_aware(copy.deepcopy(program), CONFIG, **CLIPPED, optimizer_func=adam)
    made = {
        for_test: quaver.quant_aware(
            program, CONFIG, for_test=for_test, **CLIPPED, optimizer_func=None if for_test else adam
        )
        for for_test in (view_first, not view_first)
    }
    training, view = made[False], made[True]

    train(training)

    assert quantizers_of(training) == quantizers_of(view) == quantizers_of(alone)
    assert {kind for _, _, kind in quantizers_of(training)} >= {PACT}
    assert training.history == alone.history
    assert isinstance(training.quantizer_optimizer, torch.optim.Adam)
    assert state_of(view) == state_of(training)
    assert torch.equal(view(images), training.eval()(images))


@pytest.mark.parametrize("first", [{}, {"act_quantize_func": None}], ids=["without functions", "with the function"])
def test_a_function_given_behind_an_evaluation_view_is_called_in_training(program, images, first):
    called = []

    def rounded(x):
        called.append(x)
        return (x * 8).round().clamp(-127, 127) / 8

    view = quaver.quant_aware(program, CONFIG, for_test=True, **dict.fromkeys(first, rounded))
    training = quaver.quant_aware(program, CONFIG, act_quantize_func=rounded)

    training.train()(images)

    assert called
    assert (state_of(view) == state_of(training)) == bool(first)


def test_a_view_is_of_the_program_with_its_config(program):
    made = [quaver.quant_aware(program, {"weight_bits": bits}) for bits in (4, 8, 2)]

    views = [quaver.quant_aware(program, {"weight_bits": bits}, for_test=True) for bits in (4, 8, 2)]

    assert [state_of(view) for view in views] == [state_of(one) for one in made]


def test_a_view_is_of_the_program_with_its_functions(program):
    clipped = quaver.quant_aware(program, **CLIPPED)
    plain = quaver.quant_aware(program, act_preprocess_func=own)

    assert state_of(quaver.quant_aware(program, for_test=True, act_preprocess_func=PACT)) == state_of(clipped)
    assert state_of(quaver.quant_aware(program, for_test=True, act_preprocess_func=own)) == state_of(plain)


def test_a_view_need_not_name_what_is_plain(program):
    training = quaver.quant_aware(program, CONFIG, **CLIPPED)

    for said in ({}, {"config": CONFIG}, CLIPPED):
        assert state_of(quaver.quant_aware(program, for_test=True, **said)) == state_of(training)


def test_of_programs_that_were_made_alike_a_view_is_of_the_last(program):
    _, last = quaver.quant_aware(program, CONFIG), quaver.quant_aware(program, CONFIG)

    assert state_of(quaver.quant_aware(program, for_test=True)) == state_of(last)


@pytest.mark.parametrize("others", [{"config": CONFIG}, CLIPPED], ids=["config", "functions"])
def test_a_view_that_may_be_of_several_programs_is_refused(program, others):
    quaver.quant_aware(program)
    quaver.quant_aware(program, **others)

    with pytest.raises(StageError, match=r"several fit .* Give those of the one that is meant, or call \.clone"):
        quaver.quant_aware(program, for_test=True)


@pytest.mark.parametrize(
    "others",
    [{"config": CONFIG}, {"act_preprocess_func": PACT}, {"weight_quantize_func": own}],
    ids=["config", "preprocess", "quantize"],
)
def test_a_view_made_from_something_else_than_the_training_program_is_refused(program, others):
    quaver.quant_aware(program)

    with pytest.raises(StageError, match=r"none fit the config and functions given\. Give those"):
        quaver.quant_aware(program, for_test=True, **others)


def test_a_training_program_is_what_was_asked_for_whatever_was_viewed_before(program):
    view = quaver.quant_aware(program, for_test=True, **CLIPPED)

    plain = quaver.quant_aware(program)
    clipped = quaver.quant_aware(program, **CLIPPED)
    another = quaver.quant_aware(program, **CLIPPED)

    assert PACT not in {kind for _, _, kind in quantizers_of(plain)}
    assert state_of(clipped) == state_of(view) != state_of(another)
    assert quantizers_of(clipped) == quantizers_of(another)


def test_a_view_is_of_a_program_that_trains_rather_than_of_one_that_was_only_looked_at(program):
    looked_at = quaver.quant_aware(program, CONFIG, for_test=True)
    training = quaver.quant_aware(program)

    assert state_of(quaver.quant_aware(program, for_test=True)) == state_of(training)
    assert state_of(quaver.quant_aware(program, CONFIG, for_test=True)) == state_of(looked_at)


def test_programs_that_nobody_holds_are_let_go(captured):
    made = [copy.deepcopy(captured)]
    made += [quaver.quant_aware(made[0]), quaver.quant_aware(made[0], for_test=True)]
    references = [weakref.ref(one) for one in made]

    made.clear()
    gc.collect()

    assert [reference() for reference in references] == [None] * 3
