import pytest

from quaver.config.recipe import LR_STRATEGIES, Phase
from quaver.training.schedules import STRATEGIES, learning_rate

STEPS = 10


def rates(steps, **options):
    phase = Phase(lr=1.0, **options)
    return [learning_rate(phase, step, STEPS) for step in steps]


def test_every_strategy_of_a_recipe_is_there():
    assert set(STRATEGIES) == set(LR_STRATEGIES)


def test_piecewise_decay_falls_at_its_epochs_and_not_between():
    found = rates([0, 19, 20, 39, 40], lr_strategy="piecewise_decay", num_epochs=5, lr_step_epochs=(2, 4), lr_gamma=0.1)

    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_cosine_decay_falls_from_the_rate_to_zero_slowly_at_first():
    found = rates([0, 10, 20, 40], lr_strategy="cosine_decay", num_epochs=4)

    assert found == pytest.approx([1, (1 + 0.5**0.5) / 2, 0.5, 0])


def test_piecewise_decay_falls_at_its_steps_where_these_are_given():
    found = rates([0, 14, 15, 24, 25], lr_strategy="piecewise_decay", lr_step_iters=(15, 25), lr_step_epochs=(1,))

    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_cosine_decay_ends_with_the_last_step_where_steps_are_given():
    assert rates([0, 12, 25], num_epochs=100, max_iters=25)[::2] == pytest.approx([1, 0])
    assert rates([15], num_epochs=100, max_iters=25, warmup_iters=5) == pytest.approx([0.5])


def test_a_warm_up_of_steps_ends_at_the_rate():
    found = rates(range(6), lr_strategy="constant", warmup_iters=5, warmup_epochs=2)

    assert found == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])


def test_exponential_decay_loses_the_same_share_in_every_epoch():
    found = rates([0, 10, 20], lr_strategy="exponential_decay", num_epochs=4, lr_decay_rate=0.5)

    assert found == pytest.approx([1, 0.5, 0.25])


def test_constant_stays():
    assert rates([0, 17, 39], lr_strategy="constant", num_epochs=4) == [1, 1, 1]


@pytest.mark.parametrize("strategy", LR_STRATEGIES)
def test_a_warm_up_rises_and_ends_at_the_rate(strategy):
    found = rates(range(21), lr_strategy=strategy, num_epochs=10, warmup_epochs=2, lr_decay_rate=1.0)

    assert found[:20] == sorted(found[:20])
    assert 0 < found[0] < 0.06
    assert found[20] == pytest.approx(1)
