"""Reasons and history are values: people read their words, the code reads their fields, and files hold both."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import quaver
from quaver.analysis.sensitivity import _own_patterns
from quaver.measure.executed_layers import ProfiledLayer
from quaver.measure.int8_gaps import findings
from quaver.passes import AddQuantDequantPass, QuantizationTransformPass
from quaver.program import OpRecord
from quaver.program.history import PassApplied
from quaver.program.outline import Outline, outline
from quaver.program.reason import KINDS, Because, ComputedWith, Folded, NotListed, Reason, SkipPattern
from quaver.quantizers import PACT
from quaver.records import MisfitError, decoded
from quaver.report import Run
from quaver.report.layer_rows import rows_of

SENTENCES = {
    Folded("stem"): "folded into 'stem'",
    ComputedWith("stem"): "computed with 'stem' in one step, before the result is rounded",
    SkipPattern("a.head", "head"): "its scope 'a.head' contains the skip pattern 'head'",
    NotListed("softmax"): "'softmax' is not among the op types to quantize",
    Because("its {input} has no batch dimension"): "its {input} has no batch dimension",
}
ODD_NAMES = ["it's", 'a "b"', "both ' and \"", "back\\slash", "two\nlines", "'folded into'", "ünïcode \N{ROCKET}", "{}"]
ODD = [kind(name) for kind in (Folded, ComputedWith, NotListed) for name in ODD_NAMES]
ODD += [SkipPattern(name, other) for name, other in zip(ODD_NAMES, reversed(ODD_NAMES), strict=True)]


@pytest.mark.parametrize("why", SENTENCES, ids=str)
def test_a_reason_has_a_sentence(why):
    assert why.words() == SENTENCES[why]


def test_every_kind_is_tried_here():
    assert {type(why) for why in SENTENCES} == set(KINDS.values())


@pytest.mark.parametrize("why", [*SENTENCES, *ODD], ids=str)
def test_a_reason_comes_back_from_a_file(why):
    assert decoded(Reason, json.loads(json.dumps(asdict(why)))) == why


@pytest.mark.parametrize("why", [*SENTENCES, *ODD], ids=str)
def test_a_reason_comes_back_from_a_file_that_holds_the_sentence_alone(why):
    assert decoded(Reason, why.words()) == why


@pytest.mark.parametrize(
    "sentence", ["folded into stem", r"folded into '\x'", "folded into 'a' and 'b'", "nobody wanted it"]
)
def test_any_other_sentence_is_kept_as_it_is(sentence):
    assert decoded(Reason, sentence) == Because(sentence)


@pytest.mark.parametrize(
    "value", [5, [], {}, {"kind": "Unknown"}, {"kind": "Folded"}, {"kind": "Folded", "host": 5}], ids=str
)
def test_what_is_no_reason_is_refused(value):
    with pytest.raises((MisfitError, LookupError, TypeError)):
        decoded(Reason, value)


# who asks for reasons


@pytest.fixture
def reworded(monkeypatch):
    """Every sentence in other words."""
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "sentence", "in other words")


@pytest.mark.usefixtures("reworded")
@pytest.mark.filterwarnings("ignore:not_quant_pattern. 'nowhere'")
def test_skip_patterns_are_found_whatever_the_sentence(program):
    prepared = quaver.quant_aware(program, {"not_quant_pattern": ["stem", "nowhere"]})

    assert _own_patterns(prepared) == ["stem"]
    assert {op.reason for op in prepared.ops() if not op.quantized} == {"in other words"}


@pytest.mark.usefixtures("reworded")
def test_the_report_finds_hosts_whatever_the_sentence(tmp_path):
    records = (OpRecord("a", "conv2d", "", "", True), OpRecord("b", "batch_norm", "", "", False, Folded("a")))

    host, fused = rows_of(Run(tmp_path, program=Outline("int8", (), {}, (), records), program_folder="int8"))

    assert (host.fused, fused.host, fused.precision) == (["batch_norm"], "a", "fused")


@pytest.mark.usefixtures("reworded")
@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (SkipPattern("b", "b"), "taking the pattern out of not_quant_pattern"),
        (NotListed("pool2d"), "adding 'pool2d' to quantize_op_types"),
        (Because("of something"), ""),
    ],
    ids=str,
)
def test_remedies_are_found_whatever_the_sentence(why, remedy):
    executed = [
        ProfiledLayer("a", "Convolution", "product", "u8", "u8", 1.0, (), (), ops=("a",)),
        ProfiledLayer("b", "Pooling", "other", "f32", "f32", 1.0, ("a",), (), ops=("b",)),
    ]
    ops = [OpRecord("a", "conv2d", "", "", True), OpRecord("b", "pool2d", "", "", False, why)]

    (one,) = findings(executed, "openvino", {"ops": [asdict(op) for op in ops]})

    assert (one.why, one.remedy) == ("pool2d 'b' stays float in the program: in other words", remedy)


# history


def a_function(x):
    return x


@pytest.mark.parametrize(
    "one",
    [
        QuantizationTransformPass(skip_pattern=["a", "b"], layer_bits={"stem": 4}, act_preprocess_func=PACT),
        QuantizationTransformPass(quantizable_op_type=("conv2d",), weight_quantize_func=a_function),
        AddQuantDequantPass(skip_pattern="it's"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_history_has_the_passes_as_python_writes_them(program, one):
    (step,) = one.apply(program).history

    assert step.words() == repr(one)
    assert step == decoded(PassApplied, json.loads(json.dumps(asdict(step)))) == decoded(PassApplied, repr(one))
    assert ("act_quantize_func=None" in step.words(), "None" in step.words(used_only=True)) == (True, False)


def test_history_keeps_no_function_and_no_list_of_the_users_own(program):
    types = ["conv2d"]
    (step,) = QuantizationTransformPass(quantizable_op_type=types, weight_quantize_func=a_function).apply(program).history

    types.append("mul")

    assert step.options["quantizable_op_type"] == "['conv2d']"
    assert step.options["weight_quantize_func"] == repr(a_function)


# files from before reasons were values: written by commit 3262b58, of Conv2d(1, 2, 3), BatchNorm2d, ReLU, Softmax, Flatten
# and Linear(8, 2), with weights of 4 bits, PACT on activations and not_quant_pattern=["5"]

OLDER = Path(__file__).parents[1] / "golden" / "sentences"
REASONS = [
    None,
    Folded("0"),
    ComputedWith("0"),
    NotListed("softmax"),
    Because("no quantized op computes on its output"),
    SkipPattern("5", "5"),
]


@pytest.mark.parametrize("stage", ["prepared", "int8"])
def test_an_older_program_is_read_with_its_reasons_and_passes(stage):
    saved = json.loads((OLDER / stage / "program.json").read_text())["program"]

    program = quaver.load(OLDER / stage)

    assert [op.why for op in program.ops()] == REASONS
    assert [step.words() for step in program.history] == saved["history"]
    assert [step.name for step in program.history[:2]] == ["QuantizationTransformPass", "AddQuantDequantPass"]
    assert _own_patterns(program) == (["5"] if stage == "prepared" else [])


def test_an_older_program_goes_on_as_it_would_have(tmp_path):
    x = torch.linspace(-1, 1, 64).reshape(4, 1, 4, 4)
    prepared = quaver.load(OLDER / "prepared").eval()

    again = quaver.load(quaver.save(prepared, tmp_path))

    assert again.placements == prepared.placements
    assert again.history == prepared.history
    assert torch.equal(quaver.convert(again)(x), quaver.load(OLDER / "int8")(x))


def test_an_older_program_is_in_the_report(tmp_path):
    rows = rows_of(Run(tmp_path, program=outline(OLDER / "int8"), program_folder="int8"))

    assert [row.precision for row in rows] == ["int8", "fused", "fused", "float", "float", "float"]
    assert rows[0].bits == "W4 A8"
