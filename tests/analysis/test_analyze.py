import copy
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.analysis.interpreter import WatchingInterpreter
from quaver.analysis.sites import activations
from quaver.errors import QuaverWarning

pytestmark = pytest.mark.slow


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(8, 3, 16, 16, generator=generator), torch.randint(0, 10, (8,), generator=generator)) for _ in range(4)
    ]


def outputs_of(model, name, batches):
    """What a module of the float model gives for each batch."""
    found = []
    handle = dict(model.named_modules())[name].register_forward_hook(lambda module, args, result: found.append(result))
    with torch.no_grad():
        for images, _ in batches:
            model.eval()(images)
    handle.remove()
    return found


# statistics


def test_a_tensors_figures_are_those_of_its_values(patterns, batches):
    seen = outputs_of(patterns, "stem_bn", batches)
    values = torch.cat([one.relu().flatten() for one in seen])

    found = quaver.analyze(patterns, batches).tensor("relu.output")

    assert found.largest == pytest.approx(float(values.max()))
    assert found.smallest == 0
    assert found.zeros == pytest.approx(float((values == 0).float().mean()))
    assert found.percentiles["99"] == pytest.approx(float(values.quantile(0.99)), rel=0.01)
    assert (found.bits, found.signed, found.rounded) == (8, False, True)
    assert abs(sum(found.histogram.counts) - values.numel()) <= len(found.histogram.counts) / 2


def test_the_moving_maximum_is_the_reference_average(patterns, batches):
    state = accum = 0.0
    for one in outputs_of(patterns, "stem_bn", batches):
        state, accum = 0.5 * state + 1, 0.5 * accum + float(one.relu().max())

    found = quaver.analyze(patterns, batches, moving_rate=0.5).tensor("relu.output")

    assert found.moving_max == pytest.approx(accum / state)
    assert found.threshold == found.moving_max  # no quantizer has a range yet


def test_the_moving_maximum_of_what_is_mostly_negative_is_of_its_size(patterns, batches):
    below = [(images - 5, labels) for images, labels in batches[:1]]

    found = quaver.analyze(patterns, below).tensor("x")

    assert found.moving_max == pytest.approx(-float(below[0][0].min()))
    assert found.moving_max > found.largest - 1e-4


def test_a_trained_quantizers_own_threshold_is_what_clips(patterns, batches):
    qat = quaver.quant_aware(patterns, example_inputs=(batches[0][0],)).train()
    qat(batches[0][0] * 0.5)
    threshold = float(qat.quantizer("x").threshold)
    values = torch.cat([images.flatten() for images, _ in batches])

    found = quaver.analyze(qat.eval(), batches).tensor("x")

    assert found.threshold == pytest.approx(threshold)
    saturated = (values.abs() > threshold * (1 + 0.5 / 127)).float().mean()
    assert found.clipped == pytest.approx(float(saturated), rel=0.03)
    rounded = qat.quantizer("x")(values)
    exact = 10 * math.log10(float(values.square().sum() / (rounded - values).square().sum()))
    assert found.sqnr_db == pytest.approx(exact, abs=0.2)


def test_tensors_that_share_a_range_are_told_apart(patterns, batches):
    found = quaver.analyze(patterns, batches)

    left, right = found.tensor("left.output"), found.tensor("relu_1.output")
    assert (left.quantizer, left.slot) == ("left.output", 0)
    assert (right.quantizer, right.slot) == ("left.output", 1)
    assert found.layer("concat").inputs == ["left.output", "relu_1.output"]
    assert left.sqnr_db != right.sqnr_db
    assert found.layer("concat").input_sqnr_db == min(left.sqnr_db, right.sqnr_db)  # the worse one is what is heard


def test_a_tensor_that_is_read_in_two_forms_is_named_once(batches):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(6, 4, 1)

        def forward(self, x):
            return self.conv(torch.cat([x, F.max_pool2d(x, 3, 1, 1)], 1))

    found = quaver.analyze(Twice(), batches[:1])

    assert found.layer("concat").inputs == ["x"]


def test_what_is_only_observed_has_statistics_too(patterns, batches):
    values = torch.cat([one.flatten() for one in outputs_of(patterns, "body_bn", batches)])

    found = quaver.analyze(patterns, batches).tensor("body_bn.output")

    assert not found.rounded
    assert found.largest == pytest.approx(float(values.abs().max()), rel=1e-5)


def test_a_weights_error_is_that_of_its_integers(patterns, batches):
    analysis = quaver.analyze(patterns, batches, {"weight_bits": 4})

    found = next(weight for weight in analysis.weights if weight.name == "left.weight")
    weight = patterns.left.weight.detach()
    steps = weight.abs().amax((1, 2, 3), keepdim=True) / 7
    noise = ((weight / steps).round() * steps - weight).square().sum()
    assert found.sqnr_db == pytest.approx(10 * math.log10(float(weight.square().sum() / noise)), abs=0.01)
    assert (found.bits, found.channels, found.size) == (4, 8, 128)
    assert found.thresholds == pytest.approx([7 * float(steps.min()), 7 * float(steps.max())])


def test_weights_that_are_bounded_for_older_processors_are_counted(patterns, batches):
    learned = quaver.quant_aware(
        patterns, {"weight_quantize_type": "channel_wise_learned_step"}, example_inputs=(batches[0][0],)
    )
    with torch.no_grad():
        for name in learned.placements.weights:
            learned.quantizer(name).step.mul_(0.8)  # the ranges of the other rules leave nothing to bound

    assert all(weight.bounded == 0 for weight in quaver.analyze(patterns, batches).weights)
    assert any(weight.bounded > 0.02 for weight in quaver.analyze(learned, batches).weights)


def test_a_layers_noise_is_that_of_its_input_and_weight_together(patterns, batches):
    layer = quaver.analyze(patterns, batches).layer("stem")

    expected = 10 ** (-layer.input_sqnr_db / 10) + 10 ** (-layer.weight_sqnr_db / 10)
    assert layer.sqnr_db == pytest.approx(-10 * math.log10(expected))
    assert (layer.inputs, layer.weight, layer.activation_bits, layer.weight_bits) == (["x"], "stem.weight", 8, 8)


def test_fewer_bits_mean_more_noise(patterns, batches):
    figures = [
        quaver.analyze(patterns, batches, {"activation_bits": bits, "weight_bits": bits}).layer("depthwise").sqnr_db
        for bits in (8, 6, 4)
    ]

    assert figures[0] > figures[1] + 8
    assert figures[1] > figures[2] + 8  # some 6 dB a bit


# what is run


def test_the_network_that_is_watched_computes_what_the_program_computes(trained, images):
    view = trained.clone(for_test=True)
    seen = []

    network = WatchingInterpreter(view, activations(view), lambda site, x, unit: seen.append(site.name), rounding=True)

    assert torch.equal(network.outputs([images])[0], trained(images))
    assert set(seen) == {site.name for site in activations(view)}


def test_a_sum_that_is_counted_in_steps_is_seen_in_real_numbers():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 2, 1)

        def forward(self, x):
            return self.head(F.relu(self.body(x) + x))

    model, images = Sum(), torch.randn(4, 3, 8, 8)
    qat = quaver.quant_aware(model, {"saturation_safe": False}, example_inputs=(images,)).train()
    qat(images)

    found = quaver.analyze(qat.eval(), [images]).tensor("relu.output")

    expected = F.relu(model.body(images) + images).detach()
    assert found.largest == pytest.approx(float(expected.max()), rel=0.02)  # two roundings off
    assert found.percentiles["90"] == pytest.approx(float(expected.quantile(0.9)), rel=0.02)


def test_float_prepared_frozen_and_int8_programs_tell_the_same(trained, batches):
    frozen, int8 = quaver.convert(trained, save_int8=True)

    found = [quaver.analyze(program, batches) for program in (trained, frozen, int8)]

    assert [analysis.stage for analysis in found] == ["prepared", "frozen", "int8"]
    known = {tensor.name: tensor for tensor in found[0].tensors}
    for analysis in found[1:]:
        assert [layer.name for layer in analysis.layers] == [layer.name for layer in found[0].layers]
        for tensor in analysis.tensors:
            other = known[tensor.name]
            assert tensor.largest == pytest.approx(other.largest, rel=1e-4)
            assert tensor.threshold == pytest.approx(other.threshold, rel=1e-4)
        assert {tensor.name for tensor in analysis.tensors} == {one.name for one in found[0].tensors if one.rounded}


def test_nothing_about_the_program_changes(patterns, images, batches):
    program = quaver.capture(patterns, (images,))
    qat = quaver.quant_aware(patterns, example_inputs=(images,)).train()
    qat(images)
    before = copy.deepcopy(qat.state_dict())

    quaver.analyze(qat, batches, sensitivity_images=8)
    quaver.analyze(program, batches, sensitivity_images=8)

    assert qat.training
    assert program.stage is quaver.Stage.FLOAT
    assert quaver.quant_aware(program, {"weight_bits": 4}, for_test=True).unseen()  # not a view of what was analysed
    assert all(torch.equal(value, before[name]) for name, value in qat.state_dict().items())


def test_a_prepared_program_without_ranges_gets_none(patterns, images, batches):
    qat = quaver.quant_aware(patterns, example_inputs=(images,))

    found = quaver.analyze(qat, batches, sensitivity_images=8)

    assert "x" in qat.unseen()
    assert found.sensitivity.quantized.sqnr_db is not None


def test_one_pass_and_no_batch_is_kept():
    alive = []

    def stream():
        for _ in range(4):
            images = torch.randn(4, 3, 8, 8)
            alive.append(weakref.ref(images))
            yield images
            del images
            assert sum(one() is not None for one in alive) <= 1

    found = quaver.analyze(nn.Conv2d(3, 4, 3), stream())

    assert (found.batches, found.images) == (4, 16)


def test_images_alone_are_enough(patterns, batches):
    found = quaver.analyze(patterns, [images.numpy() for images, _ in batches])

    assert found.images == 32


def test_progress_is_told_batch_by_batch(patterns, batches):
    told = []

    quaver.analyze(patterns, batches, on_progress=lambda what, done, total: told.append((what, done)))

    assert told == [("statistics", 1), ("statistics", 2), ("statistics", 3), ("statistics", 4)]


def test_a_model_of_channels_last_tensors_is_analysed(patterns, batches):
    last = [images.to(memory_format=torch.channels_last) for images, _ in batches]

    found, expected = quaver.analyze(patterns, last), quaver.analyze(patterns, batches)

    assert found.tensor("x").histogram == expected.tensor("x").histogram


# what is odd


def test_batches_with_nan_are_counted_and_left_out(patterns, batches):
    spoiled = batches[1][0].clone()
    spoiled[0, 0, 0, 0] = math.nan

    found = quaver.analyze(patterns, [batches[0], spoiled, batches[2]])

    assert found.tensor("x").not_finite == 1
    assert found.tensor("x").largest == quaver.analyze(patterns, [batches[0], batches[2]]).tensor("x").largest


def test_a_tensor_that_is_never_finite_has_no_record(patterns):
    found = quaver.analyze(patterns, [torch.full((2, 3, 16, 16), math.inf)])

    assert [tensor.name for tensor in found.tensors] == []
    assert found.layer("stem").inputs == []
    assert found.never_finite[0] == "x"
    assert found.not_finite()["x"] == "NaN or Inf in every batch, so nothing is known of it"


def test_a_weight_with_nan_is_counted_and_named(patterns, batches):
    patterns.left.weight.data[0, 0] = math.nan

    with pytest.warns(QuaverWarning, match=r"'left.weight' hold NaN or Inf"):
        found = quaver.analyze(patterns, batches)

    assert found.not_finite()["left.weight"] == "NaN or Inf in 1 of 128 values, which are left out"
    assert "left.output" in found.never_finite


def test_a_network_that_gives_nan_is_not_scored(patterns, batches):
    patterns.left.weight.data[0, 0] = math.nan

    refused = pytest.raises(quaver.QuaverError, match=r"'left.weight' has NaN or Inf in it.*set sensitivity_images=0")
    with pytest.warns(QuaverWarning, match=r"'left.weight' hold NaN or Inf"), refused:
        quaver.analyze(patterns, batches, sensitivity_images=8, target_drop=0.01)


def test_a_network_that_gives_nan_for_some_images_only_is_not_scored(batches):
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 1), nn.Linear(4, 10)

        def forward(self, x):
            return self.second(self.first(x).mean((2, 3)) / x.amax((1, 2, 3))[:, None])

    images = batches[0][0].clone()
    images[5] = 0

    with pytest.raises(quaver.QuaverError, match=r"'.*' has NaN or Inf in it"):
        quaver.analyze(Root(), [images], sensitivity_images=8)


def test_images_with_nan_are_not_scored_and_counted(patterns, batches, tmp_path):
    spoiled = batches[1][0].clone()
    spoiled[:2] = math.nan

    found = quaver.analyze(patterns, [batches[0], (spoiled, batches[1][1])], sensitivity_images=16)

    assert (found.sensitivity.images, found.sensitivity.left_out) == (14, 2)
    assert found.sensitivity.quantized.sqnr_db > 10
    assert quaver.Analysis.load(found.save(tmp_path / "analysis.json")) == found


def test_where_every_image_has_nan_there_is_nothing_to_score(patterns):
    with pytest.raises(quaver.QuaverError, match="every image has NaN or Inf"):
        quaver.analyze(patterns, [torch.full((2, 3, 16, 16), math.nan)], sensitivity_images=2)


def test_a_dead_tensor_has_no_noise():
    class Dead(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            return self.second(F.relu(self.first(x) - 1e6))

    found = quaver.analyze(Dead(), [torch.randn(2, 3, 4, 4)])

    dead = next(tensor for tensor in found.tensors if tensor.zeros == 1)
    assert (dead.largest, dead.sqnr_db, dead.clipped) == (0, None, 0)
    assert sum(dead.histogram.counts) == 2 * 4 * 4 * 4


def test_custom_quantizers_are_analysed_with_the_range_that_was_seen(patterns, images, batches):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), act_quantize_func=lambda x: x.round())

    found = quaver.analyze(qat, batches).tensor("x")

    assert found.threshold == found.moving_max


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "no batches were given"),
        (["images"], {}, "a batch is images"),
        ([torch.zeros(2, 3, 16, 16)], {"moving_rate": 1}, "moving_rate=1"),
        ([torch.zeros(2, 3, 16, 16)], {"sensitivity_images": -1}, "sensitivity_images=-1"),
        ([torch.zeros(2, 3, 16, 16)], {"target_drop": 2, "sensitivity_images": 4}, "target_drop=2"),
        ([torch.zeros(2, 3, 16, 16)], {"target_drop": 0.1}, "needs accuracies"),
    ],
)
def test_what_cannot_be_done_is_said(patterns, batches, options, message):
    with pytest.raises(quaver.QuaverError, match=message):
        quaver.analyze(patterns, batches, **options)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.eye(10)[:4], r"these have the shape \[4, 10\]. Of one-hot labels, give labels.argmax\(1\)"),
        (torch.zeros(3), r"4 images and labels of shape \[3\]. Give each image a label"),
        (torch.tensor(1), r"4 images and labels of shape \[\]"),
        (["cat", "dog", "cat", "dog"], "a pair of tensors, images and labels; this one is not"),
    ],
)
def test_labels_that_are_not_one_per_image_are_refused(patterns, images, labels, message):
    with pytest.raises(quaver.QuaverError, match=message):
        quaver.analyze(patterns, [(images, labels)], sensitivity_images=4)


def test_where_some_labels_are_missing_the_float_network_is_the_measure(patterns, images):
    found = quaver.analyze(patterns, [(images, torch.zeros(4)), (images, None), images], sensitivity_images=12)

    assert (found.sensitivity.images, found.sensitivity.measure) == (12, "agreement with the float network")


def test_other_dtypes_have_statistics_and_no_scores(images):
    half, double = nn.Conv2d(3, 4, 3).bfloat16(), nn.Conv2d(3, 4, 3).double()

    assert quaver.analyze(half, [images.bfloat16()]).images == 4
    with pytest.raises(quaver.QuaverError, match=r"parameters in torch.float64.* Give model.float\(\)"):
        quaver.analyze(double, [images.double()], sensitivity_images=4)
    with pytest.raises(quaver.QuaverError, match=r"does not run on these images \(torch.float32, shape \[4, 3, 16, 16\]\)"):
        quaver.analyze(quaver.capture(half, (images.bfloat16(),)), [images])


def test_a_live_model_with_quantizers_is_refused_with_two_ways_out(batches):
    quanter, net = quaver.QAT(), nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    quanter.quantize(net)(batches[0][0])

    with pytest.raises(quaver.QuaverError, match=r"quanter.convert\(net, input_spec\), or .*quanter.remove\(net\)"):
        quaver.analyze(net, batches)

    frozen = quanter.convert(net.eval(), quaver.InputSpec([None, 3, 16, 16]))
    for way_out in (frozen, quanter.remove(net)):
        assert len(quaver.analyze(way_out, batches).layers) == 2


def test_a_program_at_the_wrong_stage_is_refused(trained, images):
    frozen = quaver.convert(trained)
    mobile = quaver.passes.TransformForMobilePass().apply(frozen)

    with pytest.raises(quaver.QuaverError, match="a config is for a float one"):
        quaver.analyze(trained, [images], {"weight_bits": 4})
    with pytest.raises(quaver.QuaverError, match="has no float layers to compare with"):
        quaver.analyze(frozen, [images], sensitivity_images=4)
    with pytest.raises(quaver.QuaverError, match="Give the program that it was made from"):
        quaver.analyze(mobile, [images])
