"""``program.ops()`` and ``print(program)``: every op once, and why it is float if it is."""

import copy

import pytest
import torch
from torch import nn

import quaver
from quaver.program.reason import ONLY_IN_TRAINING, READ_BY_NOBODY, Folded

STAGES = ["float", "prepared", "trained", "frozen", "int8", "mobile", "view"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_op_is_listed_once(stages, stage):
    names = [op.name for op in stages[stage].ops()]

    assert len(names) == len(set(names))
    assert {"stem", "norm", "relu", "conv", "tied", "elementwise_add", "pool2d", "flatten", "dropout", "head"} <= set(names)


@pytest.mark.parametrize("stage", STAGES)
def test_a_float_op_says_why_and_a_quantized_one_has_thresholds(stages, stage):
    for op in stages[stage].ops():
        assert bool(op.reason) is not op.quantized
        assert bool(op.thresholds) is op.quantized


def test_before_quantization_every_op_says_so(program):
    reasons = {op.name: op.reason for op in program.ops()}

    assert reasons.pop("dropout") == "runs only in training"
    assert set(reasons.values()) == {"the program is not quantized yet"}


def test_reasons_name_the_op_that_computes_another(trained):
    reasons = {op.name: op.why for op in trained.ops()}

    assert reasons["norm"] == Folded("stem")
    assert reasons["dropout"] == ONLY_IN_TRAINING


def test_thresholds_are_of_the_weights_as_they_are(trained):
    def thresholds():
        return torch.tensor(next(op.thresholds["weight"] for op in trained.ops() if op.name == "stem"))

    before = thresholds()
    with torch.no_grad():
        trained.stem.weight.mul_(4)  # which rounds nothing

    assert torch.equal(thresholds(), 4 * before)
    assert (thresholds() >= trained.stem.weight.abs().amax((1, 2, 3))).all()


def test_ops_of_a_frozen_program_are_those_of_the_program_it_came_from(stages):
    assert stages["frozen"].ops() == stages["trained"].ops()
    assert stages["int8"].ops() == stages["trained"].ops()


def test_the_list_is_the_callers_own(stages):
    stages["frozen"].ops().clear()

    assert stages["frozen"].ops()


@pytest.mark.parametrize("stage", STAGES)
def test_print_has_a_line_for_every_op(stages, stage):
    program = stages[stage]

    title, header, *lines = str(program).splitlines()

    records = program.ops()
    assert title.startswith(f"Program ({program.stage.value}")
    assert header.split() == ["op", "type", "precision", "thresholds", "why"]
    assert [line.split()[:3] for line in lines] == [
        [op.name, op.type, "int8" if op.quantized else "float"] for op in records
    ]
    assert all(op.reason in line for op, line in zip(records, lines, strict=True))


def test_the_headline_counts_layers_first_and_then_the_rest(program, trained):
    first = str(trained).splitlines()[0]

    deployed = [op for op in trained.ops() if op.reason != "runs only in training"]
    assert first.startswith("Program (prepared): 4 of 4 convolutions and linear layers in int8, ")
    assert first.endswith(" in float")
    assert sum(int(part.split()[0]) for part in first.split(": ")[1].split(", ")) == len(deployed) < len(trained.ops())
    assert str(program).splitlines()[0].startswith("Program (float): 0 of 4 convolutions and linear layers in int8, ")
    assert "folded" not in str(program).splitlines()[0]


def test_an_op_that_nobody_reads_says_so_and_is_no_layer_of_the_headline():
    class Unread(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.unread, self.learning = (nn.Conv2d(3, 3, 1) for _ in range(3))
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x):
            self.unread(x).relu()
            self.norm(self.learning(x))  # which learns statistics
            return self.conv(x)

    captured = quaver.capture(Unread(), (torch.zeros(2, 3, 8, 8),))
    for program, int8 in ((captured, 0), (quaver.quant_aware(captured), 1)):
        reasons = {op.name: op.why for op in program.ops()}
        headline = str(program).splitlines()[0]

        assert reasons["unread"] == reasons["relu"] == READ_BY_NOBODY
        assert reasons["learning"] == reasons["norm"] == ONLY_IN_TRAINING
        assert headline.endswith(f"{int8} of 1 convolutions and linear layers in int8, 2 read by nobody")


def test_print_says_that_a_view_is_one(stages):
    assert "evaluation view" in str(stages["view"]).splitlines()[0]
    assert "evaluation view" not in str(stages["trained"])


def test_ops_inside_a_block_without_gradients_are_listed():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            with torch.no_grad():
                x = self.body(x)
            return self.head(x)

    program = quaver.quant_aware(Frozen(), example_inputs=(torch.zeros(2, 3, 8, 8),))

    assert [op.name for op in program.ops() if op.type == "conv2d"] == ["body", "head"]


# unseen


def test_before_training_every_rounded_activation_is_unseen(prepared):
    activations = {name for name, _ in prepared.quantizers() if name not in prepared.placements.weights}

    unseen = prepared.unseen()

    assert "x" not in unseen  # it is shifted by a constant before the first convolution reads it
    assert set(unseen) <= activations
    assert "relu.output" in unseen


def test_after_one_training_batch_nothing_is_unseen(prepared, images):
    prepared.train()(images)

    assert prepared.unseen() == []


def test_evaluation_shows_a_quantizer_nothing(prepared, images):
    before = prepared.unseen()

    prepared.eval()(images)

    assert prepared.unseen() == before != []


def test_a_switched_off_observer_sees_nothing(prepared, images):
    prepared.apply(quaver.disable_observer)

    prepared.train()(images)

    assert prepared.unseen() != []


def test_a_float_program_has_nothing_unseen(program):
    assert program.unseen() == []
    assert list(program.quantizers()) == []


def two_layers():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3))
    return quaver.quant_aware(model, example_inputs=(torch.zeros(1, 3, 8, 8),)).train()


def test_evaluating_where_some_saw_data_and_others_did_not_is_said_aloud():
    qat = two_layers()
    qat.quantizer("1.output").observing = False
    qat(torch.randn(2, 3, 8, 8))

    with pytest.warns(quaver.errors.QuaverWarning, match=r"1 quantizers, '1.output' first, saw no data yet"):
        qat.eval()


@pytest.mark.filterwarnings("error")
def test_nothing_is_said_before_training_when_a_copy_is_made_or_a_loop_is_tried():
    qat = two_layers()

    copy.deepcopy(qat).eval()
    qat.eval()(torch.randn(2, 3, 8, 8))

    with pytest.raises(quaver.errors.StageError, match="saw no data"):
        quaver.convert(qat.train())


def test_switched_off_quantizers_need_no_data():
    qat = quaver.quant_aware(torch.nn.Conv2d(3, 4, 3), example_inputs=(torch.zeros(1, 3, 8, 8),)).train()
    qat.apply(quaver.disable_fake_quant)

    qat.eval()

    assert not qat.training
