"""Which of the trained ops run in int8, chosen at conversion."""

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConfigError
from quaver.passes.choose_int8_ops import ChooseInt8Ops

IMAGES = torch.randn(16, 3, 12, 12, generator=torch.Generator().manual_seed(3))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.relu(self.body(x) + x).mean((2, 3)))


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    program = quaver.quant_aware(Net(), example_inputs=(IMAGES,)).train()
    for _ in range(3):
        program(IMAGES)
    return program.eval()


def quantized(program):
    return {op.type for op in program.ops() if op.quantized}


def test_only_ops_of_the_chosen_types_run_in_int8_and_the_others_say_why(trained):
    before = {op.name for op in trained.ops() if op.quantized}

    frozen = quaver.convert(trained, quantized_ops=["conv2d", "pool2d"])

    assert quantized(frozen) == {"conv2d", "pool2d"} < quantized(trained)
    left = [op for op in frozen.ops() if op.name in before and not op.quantized]
    assert {op.type for op in left} == {"elementwise_add", "mean", "mul"}
    assert all(f"{op.type!r} was not chosen to run in int8" in op.reason for op in left)


def test_a_float_op_reads_what_is_not_rounded_and_keeps_its_rounded_weights(trained):
    captured = {}
    frozen, all_int8 = quaver.convert(trained, quantized_ops="conv2d"), quaver.convert(trained)
    for name, program in {"chosen": frozen, "all": all_int8}.items():
        nodes = {node.meta["op"].name: node for node in program.graphs["eval"].nodes if "op" in node.meta}
        captured[name] = ["dequantize" in str(read.target) for read in nodes["head"].all_input_nodes]

    assert captured == {"chosen": [False, True, False], "all": [True, True, False]}
    assert torch.equal(frozen.state_dict()["head.weight"], all_int8.state_dict()["head.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("types", [["conv2d", "pool2d"], ["elementwise_add", "mul"], ["mul"], ["conv2d"]])
@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_what_is_deployed_is_what_the_converted_program_computes(trained, tmp_path, types, target):
    pytest.importorskip("openvino" if target == "openvino" else "onnxruntime")
    frozen, int8 = quaver.convert(trained, quantized_ops=types, save_int8=True)

    artefact = quaver.export(int8, tmp_path, target)

    result = quaver.verify(frozen, artefact, [IMAGES])
    assert result.passed, result.failures
    assert torch.equal(int8(IMAGES), frozen(IMAGES))
    assert not torch.equal(frozen(IMAGES), trained(IMAGES))


def test_a_program_without_such_ops_stays_as_it_was(trained):
    frozen = quaver.convert(trained)

    chosen = ChooseInt8Ops(quantized_ops=tuple(quantized(frozen))).apply(frozen)

    assert torch.equal(chosen(IMAGES), frozen(IMAGES))
    assert chosen.ops() == frozen.ops()


def test_a_frozen_program_can_be_chosen_from_and_is_left_as_it_was(trained):
    frozen = quaver.convert(trained)
    before = frozen(IMAGES)

    chosen = quaver.convert(frozen, quantized_ops=["conv2d"])

    assert torch.equal(frozen(IMAGES), before)
    assert torch.equal(chosen(IMAGES), quaver.convert(trained, quantized_ops=["conv2d"])(IMAGES))


@pytest.mark.parametrize(
    ("types", "message"),
    [(["conv4d"], "Did you mean 'conv"), (["concat"], "no op of these types was trained"), ([], "no op")],
)
def test_a_choice_that_leaves_nothing_is_refused(trained, types, message):
    with pytest.raises(ConfigError, match=message):
        quaver.convert(trained, quantized_ops=types)
