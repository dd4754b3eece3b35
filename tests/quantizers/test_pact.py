"""PACT: a clip whose limit is learned, and that is gone at convert."""

import warnings

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConfigError, QuaverWarning
from quaver.quantizers import PACT, AbsMax, ChannelWiseAbsMax, LearnedStep, MovingAverageAbsMax, RangeAbsMax
from quaver.quantizers.custom import as_module

X = torch.tensor([-7.0, -2.0, -0.5, 0.25, 2.0, 3.0])


def formula(x, u):
    return x - torch.relu(x - u) + torch.relu(-u - x)


def clipped(rule, limit, **options):
    quantizer = rule(**options)
    quantizer.preprocess = PACT(limit)
    return quantizer


def test_it_computes_its_formula_with_its_gradients():
    clip, u = PACT(2.5), torch.tensor(2.5, requires_grad=True)
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    down = torch.arange(1.0, 7.0)

    clip(x).backward(down)
    formula(y, u).backward(down)

    torch.testing.assert_close(clip(X), formula(X, u))
    assert torch.equal(x.grad, y.grad)
    assert torch.equal(clip.pact_threshold.grad, u.grad)


def test_it_starts_at_20_or_where_the_analysis_says():
    analysed = PACT(thresholds={"relu.output": 3.5})

    assert as_module(PACT, "x").limit == 20
    assert as_module(analysed, "relu.output").limit == 3.5
    assert as_module(analysed, "x").limit == 20
    assert as_module(PACT(6.0), "x").limit == 6


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), "20"])
def test_a_clip_starts_above_zero(wrong):
    with pytest.raises(ConfigError, match=r"PACT: threshold=.*: a clip starts at a number above 0"):
        PACT(wrong)
    with pytest.raises(ConfigError, match=r"PACT: x=.*: a clip starts at a number above 0"):
        PACT(thresholds={"x": wrong})


@pytest.mark.parametrize("rule", [AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, RangeAbsMax, LearnedStep])
def test_a_range_never_exceeds_the_limit(rule):
    quantizer = clipped(rule, 1.5)
    quantizer(X.view(1, -1))

    with torch.no_grad():
        quantizer.preprocess.pact_threshold.fill_(1.25)  # as a step of the optimizer would

    assert quantizer.threshold.max() <= 1.25
    assert quantizer.scale.max() <= 1.25 / 127
    assert quantizer(X.view(1, -1)).abs().max() <= 1.25


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("rule", [AbsMax, MovingAverageAbsMax, RangeAbsMax, LearnedStep])
def test_in_evaluation_saturation_is_the_clip(rule, signed):
    quantizer = clipped(rule, 1.5, signed=signed, narrow=False)
    x = X if signed else X.relu()
    quantizer(x)

    integers, scale = quantizer.eval().integers(x)

    assert integers.max() == (127 if signed else 255)
    assert integers.min() == (-128 if signed else 0)
    assert (integers * scale).max() <= 1.5 * (1 + 2**-16)


def test_gradients_reach_the_limit_while_the_range_lags_behind_it():
    quantizer = clipped(MovingAverageAbsMax, 1.0)
    quantizer(X)
    with torch.no_grad():
        quantizer.preprocess.pact_threshold.fill_(2.5)

    quantizer(X)[-1].backward()

    assert quantizer.preprocess.pact_threshold.grad == 1


def test_a_limit_below_zero_counts_as_its_size():
    clip = PACT(2.0)
    with torch.no_grad():
        clip.pact_threshold.neg_()

    assert torch.equal(clip(X), X.clamp(-2, 2))


def test_half_leaves_the_limit_in_float32():
    quantizer = clipped(MovingAverageAbsMax, 2.1).half()

    assert quantizer.preprocess.pact_threshold.dtype == torch.float32
    assert quantizer(X.half()).dtype == torch.float16


def test_a_limit_that_training_turned_negative_loads_as_its_size():
    trained, plain = MovingAverageAbsMax(), MovingAverageAbsMax()
    trained.preprocess = PACT(2.0)
    trained(X)
    with torch.no_grad():
        trained.preprocess.pact_threshold.neg_()

    plain.load_state_dict(trained.state_dict())

    assert plain.threshold == trained.threshold == 2.0


@pytest.mark.parametrize("rule", [AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, RangeAbsMax, LearnedStep])
def test_its_state_loads_into_a_plain_quantizer_with_the_same_integers(rule):
    trained, plain, third = clipped(rule, 1.5), rule(), rule()
    trained(X.view(1, -1))

    plain.load_state_dict(trained.state_dict())
    third.load_state_dict(plain.state_dict())

    expected = trained.eval().integers(X.view(1, -1))
    for quantizer in (plain, third):
        integers, scale = quantizer.eval().integers(X.view(1, -1))
        assert torch.equal(integers, expected[0])
        assert torch.equal(scale, expected[1])


# in programs

PACT_CONFIG = {"activation_preprocess_type": "PACT", "weight_preprocess_type": "PACT"}


@pytest.fixture
def program(patterns, images, train):
    """Trained with clips that cut into weights and activations."""
    clips = {"act_preprocess_func": PACT(0.8), "weight_preprocess_func": PACT(0.1)}
    return train(quaver.quant_aware(patterns, example_inputs=(images,), **clips))


def test_every_tensor_has_a_limit_of_its_own_named_after_it(patterns, images):
    qat = quaver.quant_aware(patterns, PACT_CONFIG, example_inputs=(images,))

    names = [name for name, _ in qat.named_parameters() if name.endswith("pact_threshold")]
    rounding = [name for name, quantizer in qat.quantizers() if quantizer.kind != "observer"]
    assert sorted(names) == sorted(f"quantizers.{name}.preprocess.pact_threshold" for name in rounding)
    assert len({id(parameter) for parameter in qat.quantizer_parameters()}) == len(rounding)


def test_limits_start_where_the_analysis_says(patterns, images):
    clip = PACT(thresholds={"relu.output": 2.5, "fc.weight": 0.25})
    qat = quaver.quant_aware(patterns, example_inputs=(images,), act_preprocess_func=clip, weight_preprocess_func=clip)

    assert qat.quantizer("relu.output").preprocess.limit == 2.5
    assert qat.quantizer("fc.weight").preprocess.limit == 0.25
    assert qat.quantizer("x").preprocess.limit == 20


def test_frozen_and_int8_equal_what_was_trained(program, images):
    frozen, int8 = quaver.convert(program, save_int8=True)

    assert torch.equal(frozen(images), program(images))
    assert torch.equal(int8(images), frozen(images))
    thresholds = {op.name: op.thresholds for op in frozen.ops()}
    assert max(thresholds["body"]["weight"]) <= program.quantizer("body.weight").preprocess.limit
    assert thresholds["stem"]["input"][0] <= program.quantizer("x").preprocess.limit


def test_a_trained_state_loads_into_a_plain_program_that_computes_the_same(program, patterns, images):
    import copy

    plain = quaver.quant_aware(copy.deepcopy(patterns), example_inputs=(images,))
    plain.load_state_dict(program.state_dict())

    assert torch.equal(plain.eval()(images), program(images))
    assert torch.equal(quaver.convert(plain)(images), program(images))
    assert list(plain.quantizer_parameters()) == []


@pytest.mark.slow
def test_the_engine_agrees_to_the_last_integer(program, images, tmp_path):
    frozen = quaver.convert(program)
    artefact = quaver.export(frozen, tmp_path)

    result = quaver.verify(frozen, artefact, [images, 3 * images])

    assert (result.agreement, result.integers_equal) == (1.0, 1.0)


def test_limits_are_trained_with_a_group_of_their_own(patterns, images):
    qat = quaver.quant_aware(patterns, PACT_CONFIG, example_inputs=(images,)).train()
    groups = qat.parameter_groups(lr=0.5, weight_decay=0.1)
    optimizer = torch.optim.SGD(groups, lr=0.0)
    before = {name: parameter.detach().clone() for name, parameter in qat.named_parameters()}

    qat(images).sum().backward()
    optimizer.step()

    for name, parameter in qat.named_parameters():
        if "pact_threshold" in name:  # 20 is far outside, so that there is only the decay
            torch.testing.assert_close(parameter, before[name] * (1 - 0.5 * 0.1))
        else:
            assert torch.equal(parameter, before[name])


def test_a_program_with_clips_is_saved_and_trains_on(program, images, train, tmp_path):
    quaver.save(program.train(), tmp_path)
    again = quaver.load(tmp_path)

    assert torch.equal(again.eval()(images), program.eval()(images))
    torch.manual_seed(0)
    expected = train(program)(images)
    torch.manual_seed(0)
    assert torch.equal(train(again)(images), expected)


def test_a_function_and_a_type_together_are_refused(patterns, images):
    with pytest.raises(ConfigError, match="activation_preprocess_type='PACT': a preprocess function was given as well"):
        quaver.quant_aware(
            patterns, {"activation_preprocess_type": "PACT"}, example_inputs=(images,), act_preprocess_func=nn.Hardtanh
        )


@pytest.mark.slow
def test_a_compiled_program_moves_the_limits_as_the_eager_one_does():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 6), nn.Flatten())
    images = torch.randn(4, 3, 8, 8)
    qat = quaver.quant_aware(model, example_inputs=(images,), act_preprocess_func=PACT(0.5)).train()
    qat(images)

    def gradients(run):
        qat.zero_grad()
        run(images).square().sum().backward()
        return [parameter.grad.clone() for parameter in qat.quantizer_parameters()]

    expected = gradients(qat)
    torch._dynamo.reset()
    compiled = gradients(torch.compile(qat, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()

    assert all(one.abs() > 0 for one in expected)
    torch.testing.assert_close(compiled, expected)


def test_thresholds_are_a_dict():
    with pytest.raises(ConfigError, match=r"PACT: thresholds=\[1, 2\]: takes a dict"):
        PACT(thresholds=[1, 2])


def test_thresholds_of_tensors_that_are_not_there_are_warned_of_with_the_nearest_name():
    net, images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), torch.randn(2, 3, 8, 8)
    wrong = {"1.outputs": 3.5, "0.weight": 2.0}

    with pytest.warns(QuaverWarning, match=r"1 of 2 thresholds .* '1.outputs' first.* at 20\. Did you mean '1.output'\?"):
        quaver.quant_aware(net, example_inputs=(images,), act_preprocess_func=PACT(thresholds=wrong))
    with pytest.warns(QuaverWarning, match=r"2 of 2 thresholds .* '1.output' first"):
        quaver.QAT(act_preprocess_func=PACT(thresholds={"1.output": 3.5, "input": 2.0})).quantize(net)


def test_thresholds_that_are_all_used_are_not_warned_of():
    net, images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), torch.randn(2, 3, 8, 8)
    thresholds = quaver.analyze(net, [images]).thresholds()

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        quaver.quant_aware(net, example_inputs=(images,), act_preprocess_func=PACT(thresholds=thresholds))
        quaver.QAT(act_preprocess_func=PACT(thresholds={"2.input": 3.5})).quantize(net)

    assert [str(one.message) for one in heard if issubclass(one.category, QuaverWarning)] == []
