"""Where quantizers come to stand, on graphs of a few nodes."""

from copy import copy

import torch

from graphs import HandMade, aten, reading, weighted
from quaver.engines import ENGINES
from quaver.graph.nodes import is_op, op_of, ops_by_name, quantizer_of
from quaver.passes.placement import place
from quaver.program import EVAL, TRAIN, Stage

OPENVINO = ENGINES["openvino"]


def planner(plan):
    return lambda ops, planned: (plan, {})


def placed(made, plan, *outputs, target=OPENVINO):
    return place(made.program(*outputs), target, planner(plan))


def read_by(program, op, mode=EVAL):
    """What an op of the program reads: ``q(tensor)`` where a quantizer, else the op or the path that it comes from."""
    node = ops_by_name(program.graphs[mode])[op]
    return [
        f"q({quantizer_of(value)})" if quantizer_of(value) else op_of(value).name if is_op(value) else value.target
        for value in node.all_input_nodes
    ]


def conv(made, name, x, channels=4):
    return made.op(name, aten.conv2d.default, x, made.parameter(f"{name}.weight", channels, made.values[x].shape[1], 1, 1))


def two_convolutions():
    made = HandMade()
    x = made.input("x", 2, 3, 4, 4)
    return made, conv(made, "first", x), conv(made, "second", x)


def test_an_op_gets_quantizers_for_its_input_and_its_weight_in_both_graphs():
    made, first, second = two_convolutions()

    program = placed(made, {"first": weighted()}, first, second)

    for mode in (EVAL, TRAIN):
        assert read_by(program, "first", mode) == ["q(x)", "q(first.weight)"]
        assert read_by(program, "second", mode) == ["x", "second.weight"]
    assert program.stage is Stage.PREPARED
    assert program.placements.roles["first"] == {"weight": "first.weight", "input": "x", "output": "first.output"}


def test_a_tensor_that_feeds_two_ops_is_quantized_once():
    made, first, second = two_convolutions()

    program = placed(made, {"first": weighted(), "second": weighted()}, first, second)

    calls = [node for node in program.graphs[EVAL].nodes if node.target == "quantizers.x"]
    assert len(calls) == 1
    assert {op_of(user).name for user in calls[0].users} == {"first", "second"}


def test_the_reader_that_asks_for_the_most_bits_gets_them():
    made, first, second = two_convolutions()
    plan = {"first": reading(0, bits=4), "second": reading(0, bits=8)}

    assert placed(made, plan, first, second).quantizer("x").grid.bits == 8


def test_tensors_that_are_joined_share_a_quantizer_and_are_observed_apart():
    made, first, second = two_convolutions()
    joined = made.op("cat", aten.cat.default, [first, second], 1)
    last = conv(made, "last", joined)

    program = placed(made, {"cat": reading(0, 1), "last": weighted()}, last)

    assert read_by(program, "cat") == ["q(first.output)", "q(first.output)"]
    assert read_by(program, "last") == ["q(first.output)", "q(last.weight)"]
    assert program.placements.roles["cat"]["output"] == "first.output"
    assert program.quantizer("first.output").tensors == 2


def test_in_training_what_was_only_moved_is_not_rounded_again():
    made, first, _ = two_convolutions()
    flat = made.op("flatten", aten.flatten.using_ints, first, 1)
    last = made.op("last", aten.linear.default, flat, made.parameter("last.weight", 5, 64))

    program = placed(made, {"flatten": reading(0), "last": weighted()}, last)

    assert read_by(program, "last", EVAL) == ["q(first.output)", "q(last.weight)"]
    assert read_by(program, "last", TRAIN) == ["flatten", "q(last.weight)"]


def test_in_training_a_quantizer_stands_in_front_of_a_dropout():
    made, first, _ = two_convolutions()
    dropped = made.op("drop", aten.dropout.default, first, 0.5, True)
    last = conv(made, "last", dropped)

    program = placed(made, {"last": weighted()}, last)

    assert read_by(program, "last", EVAL) == ["q(drop.output)", "q(last.weight)"]
    assert read_by(program, "drop", TRAIN) == ["q(drop.output)"]
    assert read_by(program, "last", TRAIN) == ["drop", "q(last.weight)"]


def test_a_dropout_that_two_ops_read_has_one_quantizer_in_front():
    made, first, _ = two_convolutions()
    dropped = made.op("drop", aten.dropout.default, first, 0.5, True)
    left, right = conv(made, "left", dropped), conv(made, "right", dropped)

    program = placed(made, {"left": weighted(), "right": weighted()}, left, right)

    (quantized,) = ops_by_name(program.graphs[TRAIN])["drop"].all_input_nodes
    assert quantizer_of(quantized) == "drop.output"
    assert op_of(quantized.args[0]).name == "first"


def test_what_cannot_be_negative_is_unsigned_where_the_engine_can():
    signed_only = copy(OPENVINO)
    signed_only.unsigned = False

    def signed(target):
        made, first, _ = two_convolutions()
        last = conv(made, "last", made.op("relu", aten.relu.default, first))
        program = placed(made, {"first": weighted(), "last": weighted()}, last, target=target)
        return program.quantizer("x").grid.signed, program.quantizer("relu.output").grid.signed

    assert signed(OPENVINO) == (True, False)
    assert signed(signed_only) == (True, True)


def test_what_a_quantized_op_gives_is_observed_behind_its_relu():
    made, first, _ = two_convolutions()
    relu = made.op("relu", aten.relu.default, first)

    program = placed(made, {"first": weighted()}, relu)

    assert program.placements.roles["first"]["output"] == "relu.output"
    (observed,) = (node for node in program.graphs[TRAIN].nodes if node.target == "quantizers.relu.output")
    assert op_of(observed.args[0]).name == "relu"
    assert not [node for node in program.graphs[EVAL].nodes if node.target == "quantizers.relu.output"]


def test_an_op_that_reads_one_tensor_twice_reads_one_quantizer():
    made, first, _ = two_convolutions()
    total = made.op("add", aten.add.Tensor, first, first)

    program = placed(made, {"add": reading(0, 1)}, total)

    assert read_by(program, "add") == ["q(first.output)"]
    assert program.placements.roles["add"]["input0"] == program.placements.roles["add"]["input1"] == "first.output"


def test_a_weight_that_two_ops_share_is_quantized_once():
    made = HandMade()
    x = made.input("x", 2, 4, 4, 4)
    first = made.op("first", aten.conv2d.default, x, made.parameter("shared", 4, 4, 1, 1))
    second = made.op("second", aten.conv2d.default, first, made.parameter("shared"))

    program = placed(made, {"first": weighted(), "second": weighted()}, second)

    assert program.placements.weights == {"shared": "shared"}
    assert len([node for node in program.graphs[EVAL].nodes if node.target == "quantizers.shared"]) == 1


def test_a_later_plan_adds_to_an_earlier_one_and_keeps_its_quantizers():
    made, first, second = two_convolutions()
    before = placed(made, {"first": weighted()}, first, second)

    after = place(before, OPENVINO, planner({"second": weighted()}))

    assert after.quantizer("x") is before.quantizer("x")
    assert after.quantizer("first.weight") is before.quantizer("first.weight")
    assert after.placements.quantized == {"first", "second"}


def test_a_plan_for_nothing_leaves_the_graphs_as_they_are():
    made, first, second = two_convolutions()
    program = made.program(first, second)

    result = place(program, OPENVINO, planner({}))

    for mode in (EVAL, TRAIN):
        assert [node.target for node in result.graphs[mode].nodes] == [node.target for node in program.graphs[mode].nodes]
    x = torch.randn(2, 3, 4, 4)
    assert all(torch.equal(one, other) for one, other in zip(result.eval()(x), program.eval()(x), strict=True))
