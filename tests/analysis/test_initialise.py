import pytest
import torch
from torch import nn

import quaver
from quaver.config.recipe import STATISTICS
from quaver.errors import QuaverWarning

pytestmark = pytest.mark.slow


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(8, 3, 16, 16, generator=generator) for _ in range(3)]


@pytest.fixture
def analysis(patterns, batches):
    return quaver.analyze(patterns, batches)


def prepared(model, images, **config):
    return quaver.quant_aware(model, config, example_inputs=(images,))


@pytest.mark.parametrize("rule", ["moving_average_abs_max", "range_abs_max"])
@pytest.mark.parametrize("by", STATISTICS)
def test_every_quantizer_starts_at_what_was_measured(patterns, batches, analysis, rule, by):
    qat = prepared(patterns, batches[0], activation_quantize_type=rule)

    started = analysis.initialise(qat, by=by)

    assert qat.unseen() == []
    assert "x" in started
    assert float(qat.quantizer("x").threshold) == pytest.approx(analysis.tensor("x").figure(by), rel=1e-6)


def test_a_percentile_leaves_outliers_out_of_the_range():
    images = torch.rand(8, 3, 16, 16).clamp_min(0.01)
    images[0, 0, 0, 0] = 1000.0
    net = nn.Conv2d(3, 4, 3)
    analysis = quaver.analyze(net, [images])
    qat = prepared(net, images)

    analysis.initialise(qat, by="p99")

    assert analysis.tensor("input").largest == 1000
    assert 0.98 < float(qat.quantizer("input").threshold) < 1.02
    assert analysis.thresholds(by="p99")["input"] == analysis.tensor("input").percentiles["99"]


def test_a_tensor_of_nearly_nothing_but_zeros_starts_at_its_largest_value():
    images = torch.zeros(8, 3, 16, 16)
    images[0, 0, 0, 0] = 3.0
    net = nn.Conv2d(3, 4, 3)
    analysis = quaver.analyze(net, [images])
    qat = prepared(net, images)

    analysis.initialise(qat, by="p99")

    assert analysis.tensor("input").percentiles["99"] == 0
    assert float(qat.quantizer("input").threshold) == pytest.approx(3)


def test_a_range_near_the_end_of_float32_starts_too():
    net, images = nn.Conv2d(3, 4, 3), torch.full((1, 3, 4, 4), 1e38)
    qat = prepared(net, images)

    quaver.analyze(net, [images]).initialise(qat)

    assert float(qat.quantizer("input").threshold) == pytest.approx(1e38)


def test_tensors_that_share_a_quantizer_keep_places_of_their_own(patterns, batches, analysis):
    qat = prepared(patterns, batches[0])

    analysis.initialise(qat)

    shared = qat.quantizer("left.output")
    expected = [analysis.tensor(name).moving_max for name in ("left.output", "relu_1.output")]
    assert (shared.accum / shared.state).tolist() == pytest.approx(expected)


def test_observers_start_too(patterns, batches, analysis):
    qat = prepared(patterns, batches[0])

    analysis.initialise(qat)

    assert float(qat.quantizer("body_bn.output").threshold) == pytest.approx(analysis.tensor("body_bn.output").moving_max)


def test_an_initialised_program_can_be_converted_without_any_training(patterns, batches, analysis):
    qat = prepared(patterns, batches[0])

    analysis.initialise(qat)

    frozen = quaver.convert(qat.eval())
    assert torch.equal(frozen(batches[0]), qat(batches[0]))


def test_the_next_batch_moves_a_started_average_like_any_other(patterns, batches, analysis):
    qat = prepared(patterns, batches[0], moving_rate=0.9)
    analysis.initialise(qat)
    before = float(qat.quantizer("x").threshold)

    qat.train()(batches[0] * 100)

    largest = 100 * float(batches[0].abs().max())
    assert float(qat.quantizer("x").threshold) == pytest.approx(0.9 * before + 0.1 * largest, rel=1e-5)


def test_a_window_starts_with_one_entry(patterns, batches, analysis):
    qat = prepared(patterns, batches[0], activation_quantize_type="range_abs_max", window_size=2)

    analysis.initialise(qat)

    window = qat.quantizer("x")
    assert window.steps.tolist() == [1]
    qat.train()(batches[0] * 0.01)
    qat(batches[0] * 0.01)
    assert float(window.threshold) < 0.1  # the start has left the window


class Clip(nn.Module):
    """What PACT is to an analysis: a module with a ``pact_threshold``."""

    def __init__(self):
        super().__init__()
        self.pact_threshold = nn.Parameter(torch.tensor(20.0))

    def forward(self, x):
        return torch.clamp(x, -self.pact_threshold, self.pact_threshold)


def test_learned_clips_start_at_what_was_measured(patterns, batches, analysis):
    qat = quaver.quant_aware(patterns, example_inputs=(batches[0],), act_preprocess_func=Clip)

    analysis.initialise(qat)

    clips = {name: float(one.preprocess.pact_threshold.detach()) for name, one in qat.quantizers() if one.preprocess}
    assert clips["x"] == pytest.approx(analysis.tensor("x").moving_max)
    shared = [analysis.tensor(name).moving_max for name in ("left.output", "relu_1.output")]
    assert clips["left.output"] == pytest.approx(max(shared))  # two tensors behind one clip


def test_a_learned_clip_in_front_of_a_weight_starts_at_its_largest_value(patterns, batches, analysis):
    qat = prepared(patterns, batches[0], weight_preprocess_type="PACT")

    started = analysis.initialise(qat)

    clip = qat.quantizer("left.weight").preprocess.pact_threshold
    assert float(clip.detach()) == pytest.approx(float(patterns.left.weight.detach().abs().max()))
    assert "left.weight" in started


def test_a_clip_in_front_of_zeros_starts_where_it_was(patterns, batches):
    dead = quaver.analyze(patterns, [torch.zeros_like(batches[0])])
    qat = quaver.quant_aware(patterns, example_inputs=(batches[0],), act_preprocess_func=Clip)

    dead.initialise(qat)

    assert dead.tensor("x").moving_max == 0
    assert qat.quantizer("x").preprocess.pact_threshold == 20


def test_learned_steps_start_at_what_was_measured(patterns, batches, analysis):
    qat = prepared(patterns, batches[0], activation_quantize_type="learned_step")

    analysis.initialise(qat, by="best_threshold")

    assert qat.unseen() == []
    x, shared = qat.quantizer("x"), qat.quantizer("left.output")
    assert float(x.threshold) == pytest.approx(analysis.tensor("x").best_threshold, rel=1e-4)
    both = [analysis.tensor(name).best_threshold for name in ("left.output", "relu_1.output")]
    assert float(shared.threshold) == pytest.approx(max(both), rel=1e-4)


def test_thresholds_go_by_the_names_of_quantizers(patterns, analysis):
    found = analysis.thresholds(by="largest")

    both = [analysis.tensor(name).largest for name in ("left.output", "relu_1.output")]
    assert found["left.output"] == max(both)
    assert "relu_1.output" not in found
    assert found["left.weight"] == pytest.approx(float(patterns.left.weight.detach().abs().max()))


def test_an_analysis_that_was_read_from_a_file_does_the_same(patterns, batches, analysis, tmp_path):
    first, second = prepared(patterns, batches[0]), prepared(patterns, batches[0])

    analysis.initialise(first)
    quaver.Analysis.load(analysis.save(tmp_path / "a.json")).initialise(second)

    for name, quantizer in first.quantizers():
        assert torch.equal(quantizer.threshold, second.quantizer(name).threshold)


def test_the_analysis_of_another_model_is_refused(batches, analysis):
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.other = nn.Conv2d(3, 4, 3)

        def forward(self, image):
            return self.other(image)

    with pytest.raises(quaver.QuaverError, match="no tensor of the analysis is one of this program's"):
        analysis.initialise(prepared(Other(), batches[0]))


def test_quantizers_that_are_not_in_the_analysis_are_named(patterns, batches):
    part = quaver.analyze(patterns, batches, {"not_quant_pattern": ["stem"]})
    qat = prepared(patterns, batches[0])

    with pytest.warns(QuaverWarning, match="1 quantizers, 'x' first, are not in the analysis"):
        part.initialise(qat)


def test_abs_max_starts_there_until_the_next_batch(patterns, batches, analysis):
    qat = prepared(patterns, batches[0], activation_quantize_type="abs_max")

    started = analysis.initialise(qat)

    assert {"x", "body_bn.output"} <= set(started)
    assert qat.unseen() == []
    assert qat.quantizer("x").threshold == pytest.approx(analysis.thresholds()["x"])


def test_what_cannot_be_started_is_refused(patterns, images, analysis, trained):
    with pytest.raises(quaver.QuaverError, match="takes a prepared program"):
        analysis.initialise(quaver.capture(patterns, (images,)))
    with pytest.raises(quaver.QuaverError, match="by='median'"):
        analysis.initialise(trained, by="median")
