import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.analysis.sensitivity import with_float
from quaver.engines import DEFAULT
from quaver.graph.nodes import is_op, op_of
from quaver.program import EVAL
from quaver.program.reason import SkipPattern
from quaver.program.views import Executable

pytestmark = pytest.mark.slow

CLASSES = 4
PLAIN = {"saturation_safe": False}  # weights that nobody trained are bounded a lot; that is not what is asked here


def images_of(count, seed):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


class Outliers(nn.Module):
    """Three layers, the middle one reading a channel a thousand times as large as what matters: its rounding hurts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.middle = nn.Conv2d(8, 8, 1, bias=False)
        self.head = nn.Linear(8, CLASSES)
        with torch.no_grad():
            self.first.weight[0] *= 1000
            self.middle.weight[:, 0] = 0
            self.head.bias -= self.forward(images_of(64, seed=2)).mean(0)  # so that no class wins always

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.relu(self.middle(x))
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def model():
    return Outliers().eval()


@pytest.fixture(scope="module")
def batches(model):
    """Images with the classes that the float model gives: its accuracy is 1."""
    with torch.no_grad():
        return [(part, model(part).argmax(1)) for part in images_of(96, seed=1).split(16)]


@pytest.fixture(scope="module")
def found(model, batches):
    return quaver.analyze(model, batches, PLAIN, sensitivity_images=96, target_drop=0.0)


def test_the_layer_that_hurts_is_named_first(found):
    assert found.worst_first()[0].name == "middle"


def test_scores_are_compared_with_float_and_with_every_layer_quantized(found):
    summary = found.sensitivity

    assert (summary.images, summary.measure, summary.floating.accuracy) == (96, "top-1", 1.0)
    assert summary.floating.sqnr_db is None
    assert summary.quantized.accuracy < 0.9


def test_only_the_layer_that_hurts_costs_accuracy(found):
    assert found.layer("middle").only.accuracy < 0.9
    assert found.layer("first").only.accuracy >= 0.97
    assert found.layer("middle").without.accuracy > found.sensitivity.quantized.accuracy
    assert found.layer("head").without.accuracy < 0.9


def test_the_layer_that_hurts_is_proposed_to_stay_float(found):
    proposal = found.proposal

    assert "middle" in proposal.not_quant_pattern
    assert proposal.reached
    assert proposal.score.accuracy == 1.0


def test_following_the_proposal_gives_the_score_that_was_measured(model, batches, found):
    patterns = found.proposal.not_quant_pattern
    qat = quaver.quant_aware(model, PLAIN | {"not_quant_pattern": patterns}, example_inputs=(batches[0][0],))
    found.initialise(qat)

    hits = sum(int((qat.eval()(images).argmax(1) == labels).sum()) for images, labels in batches)

    floats = {op.name for op in qat.ops() if isinstance(op.why, SkipPattern)}
    assert floats == set(found.proposal.layers)
    assert hits / 96 == found.proposal.score.accuracy


def applied(model, config, proposal, images):
    """A program with the proposal's patterns in its config, as they were printed."""
    return quaver.quant_aware(model, config | {"not_quant_pattern": proposal.not_quant_pattern}, example_inputs=(images,))


@pytest.mark.parametrize("own", [{}, {"not_quant_pattern": ["^fir", "head"]}])
def test_what_is_float_already_stays_float_when_the_proposal_is_followed(batches, own):
    class Scoped(Outliers):
        def forward(self, x):
            x = F.relu(self.middle(F.relu(self.first(x))))
            with quaver.name_scope("skip_quant"):
                return self.head(x.mean((2, 3)))

    model, config = Scoped().eval(), PLAIN | own
    before = quaver.quant_aware(model, config, example_inputs=(batches[0][0],))

    proposal = quaver.analyze(before, batches, sensitivity_images=96, target_drop=0.0).proposal

    after = applied(model, config, proposal, batches[0][0])
    gone = {op.name for op in before.ops() if op.quantized} - {op.name for op in after.ops() if op.quantized}
    assert gone == set(proposal.layers)
    assert not {op.name for op in after.ops() if op.quantized} - {op.name for op in before.ops() if op.quantized}


def test_a_layer_whose_name_is_part_of_others_is_left_float_alone():
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, CLASSES, bias=False))
    images = torch.randn(32, 4, 8, 8)
    images[:, 0], net[0].weight.data[:, 0] = 0, 1e5  # beside that, the weights that matter are rounded to nothing

    proposal = quaver.analyze(net, [images], PLAIN, sensitivity_images=32, target_drop=0.1).proposal

    floats = {op.name for op in applied(net, PLAIN, proposal, images).ops() if isinstance(op.why, SkipPattern)}
    assert proposal.layers == ["0"]
    assert floats == {"0"}  # not "10"


def test_where_nothing_hurts_nothing_is_proposed(batches):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, CLASSES))

    found = quaver.analyze(plain, [images for images, _ in batches], PLAIN, sensitivity_images=96, target_drop=0.05)

    assert found.sensitivity.measure == "agreement with the float network"
    assert found.sensitivity.floating.accuracy == 1.0
    assert (found.proposal.layers, found.proposal.not_quant_pattern, found.proposal.reached) == ([], [], True)


def test_only_so_many_images_are_scored(model, batches):
    found = quaver.analyze(model, batches, sensitivity_images=10)

    assert found.sensitivity.images == 10
    assert found.images == 96
    assert found.proposal is None


def test_layers_that_only_move_values_are_not_scored(patterns, images):
    found = quaver.analyze(patterns, [images], sensitivity_images=4)

    assert found.layer("concat").only is None
    assert found.layer("flatten").only is None
    assert found.layer("elementwise_add").only is not None


def test_with_every_op_float_the_graph_computes_the_float_network(trained, patterns, images):
    graph = with_float(trained.graphs[EVAL], trained.placements.quantized)

    result = Executable(trained.clone(for_test=True), DEFAULT.lowering().run(graph))(images)[0]

    assert torch.equal(result, patterns.eval()(images))


def test_with_no_op_float_the_graph_computes_what_the_program_computes(trained, images):
    result = Executable(trained.clone(for_test=True), DEFAULT.lowering().run(with_float(trained.graphs[EVAL], ())))(images)[
        0
    ]

    assert torch.equal(result, trained(images))


def test_an_op_that_is_left_float_leaves_its_neighbours_as_they_were(trained):
    graph = with_float(trained.graphs[EVAL], {"left"})

    read = {op_of(node).name: [one.op for one in node.all_input_nodes] for node in graph.nodes if is_op(node)}
    assert read["left"][0] == "call_function"
    assert read["right"][0] == "call_module"  # the same tensor, rounded


def test_progress_is_told_layer_by_layer(model, batches):
    told = []

    quaver.analyze(model, batches, sensitivity_images=8, target_drop=0.0, on_progress=lambda *step: told.append(step))

    assert ("sensitivity", 4, 4) in told
    assert any(what == "proposal" for what, _, _ in told)


def test_a_target_needs_logits():
    with pytest.raises(quaver.QuaverError, match="needs a row of logits"):
        quaver.analyze(nn.Conv2d(1, 2, 1), [torch.randn(2, 1, 4, 4)], sensitivity_images=2, target_drop=0.1)


def test_without_logits_layers_are_compared_by_noise():
    found = quaver.analyze(nn.Conv2d(1, 2, 1), [torch.randn(2, 1, 4, 4)], sensitivity_images=2)

    assert found.layers[0].only.accuracy is None
    assert found.layers[0].only.sqnr_db > 20
