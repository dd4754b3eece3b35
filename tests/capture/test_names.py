"""Ops have one name each, the same in both graphs, and a scope that ``quaver.name_scope`` can add to."""

import re

import pytest
import torch
from torch import nn

import quaver
from quaver.graph.nodes import is_op, op_of
from quaver.program import EVAL, TRAIN
from quaver.program.reason import ONLY_IN_TRAINING


def names_in(program: quaver.Program, mode: str) -> list[str]:
    return [op_of(node).name for node in program.graphs[mode].nodes if is_op(node)]


def scopes(program: quaver.Program) -> dict[str, str]:
    return {op.name: op.scope for op in program.ops()}


def test_names_are_unique_in_each_graph(captured):
    for mode in (EVAL, TRAIN):
        names = names_in(captured, mode)
        assert len(names) == len(set(names))


def test_ops_of_both_graphs_have_equal_names_in_equal_order(captured):
    evaluated, trained = names_in(captured, EVAL), names_in(captured, TRAIN)

    assert [name for name in trained if name in evaluated] == evaluated
    assert len(evaluated) >= 9


def test_equal_names_are_equal_ops(captured):
    ops = {mode: {op_of(n).name: n for n in captured.graphs[mode].nodes if is_op(n)} for mode in (EVAL, TRAIN)}

    for name, node in ops[EVAL].items():
        assert op_of(node) == op_of(ops[TRAIN][name])
        assert node.target == ops[TRAIN][name].target


def test_an_op_is_named_after_its_module_and_others_after_their_type(captured):
    names = [op.name for op in captured.ops()]

    assert {"stem.0", "stem.1", "stem.2", "block.conv", "block.norm", "block.relu", "pool", "head"} <= set(names)
    assert {"block.elementwise_add", "flatten"} <= set(names)


def test_ops_that_run_only_in_training_are_named_once_and_say_so(captured):
    records = quaver.quant_aware(captured).ops()

    only_in_training = {record.name for record in records if record.why == ONLY_IN_TRAINING}
    assert "dropout" in only_in_training
    assert any(name.startswith("block.depth") for name in only_in_training)
    assert len(records) == len({record.name for record in records})
    assert not any(record.quantized for record in records if record.name in only_in_training)


def test_counters_are_no_ops(captured):
    types = {op.type for op in captured.ops()}

    assert "add_" not in types


def test_a_module_called_twice_gives_two_ops(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.conv(self.conv(x).relu())

    program = quaver.quant_aware(Twice(), example_inputs=(images,))
    program.train()(images)
    convolutions = [op for op in program.ops() if op.type == "conv2d"]

    assert [op.name for op in convolutions] == ["conv", "conv_1"]
    assert all(op.quantized and op.scope == "conv" for op in convolutions)
    assert convolutions[0].thresholds["weight"] == convolutions[1].thresholds["weight"]
    assert convolutions[0].thresholds["input"] != convolutions[1].thresholds["input"]


def test_a_shared_weight_has_one_quantizer(images):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).relu())

    program = quaver.quant_aware(Tied(), example_inputs=(images,))

    assert [name for name, _ in program.quantizers() if "weight" in name] == ["first.weight"]
    assert [op.quantized for op in program.ops() if op.type == "conv2d"] == [True, True]


def test_the_source_is_a_line_of_the_model(captured):
    sources = {op.name: op.source for op in captured.ops()}

    assert re.fullmatch(r"conftest\.py:\d+", sources["block.conv"])


def test_the_source_is_never_a_line_of_quaver(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())

    sources = [op.source for op in quaver.capture(model, (images,)).ops()]

    assert not any("export.py" in source for source in sources)


class Scoped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 1) for _ in range(3))

    def forward(self, x):
        with quaver.name_scope("outer"):
            x = self.first(x)
            with quaver.name_scope("inner"):
                x = self.second(x)
            x = x + 1.0
        return self.third(x)


def test_name_scope_adds_to_the_scope(images):
    found = scopes(quaver.capture(nn.Sequential(Scoped()), (images,)))

    assert found["0.first"] == "0.first.outer"
    assert found["0.third"] == "0.third"


def test_nested_scopes_join_and_end_where_they_end(images):
    found = scopes(quaver.capture(nn.Sequential(Scoped()), (images,)))

    assert found["0.second"] == "0.second.outer.inner"
    assert found["0.scale"] == "0.outer"


def test_a_skip_pattern_finds_a_scope(images):
    program = quaver.quant_aware(Scoped(), {"not_quant_pattern": "inner"}, example_inputs=(images,))

    found = {op.name: op for op in program.ops()}
    assert found["first"].quantized
    assert not found["second"].quantized
    assert found["second"].reason == "its scope 'second.outer.inner' contains the skip pattern 'inner'"


def test_name_scope_changes_nothing_outside_of_capture(images):
    def plain(model, x):
        return model.third(model.second(model.first(x)) + 1.0)

    model = Scoped()

    given = model(images)

    assert torch.equal(given, plain(model, images))
    with quaver.name_scope("outside"):
        found = scopes(quaver.capture(nn.Sequential(nn.Conv2d(3, 3, 1)), (images,)))
    assert scopes(quaver.capture(nn.Sequential(nn.Conv2d(3, 3, 1)), (images,))) == {"0": "0"}
    assert set(found) == {"0"}


def test_a_scope_ends_with_an_error_inside_it(images):
    with pytest.raises(ZeroDivisionError), quaver.name_scope("broken"):
        raise ZeroDivisionError

    assert scopes(quaver.capture(nn.Sequential(nn.Conv2d(3, 3, 1)), (images,))) == {"0": "0"}


def test_a_scoped_model_compiles_without_a_graph_break(images):
    model = Scoped()
    torch._dynamo.reset()

    given = torch.compile(model, fullgraph=True, backend="aot_eager")(images)

    torch.testing.assert_close(given, model(images))


OWN_NAMES = ["ops", "stage", "quantizers", "graph", "graphs", "code", "copy", "constants", "history", "records", "signature"]


class Children(nn.Module):
    """Its children have names that a program uses for itself."""

    def __init__(self, names):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Conv2d(3, 3, 1))

    def forward(self, x):
        for child in self.children():
            x = child(x).relu()
        return x + torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_child_may_have_a_name_that_a_program_uses_itself(images, tmp_path, name):
    model = Children([name, "other"])

    program = quaver.capture(model, (images,))
    prepared = quaver.quant_aware(program)
    prepared.train()(images)
    restored = quaver.load(quaver.save(prepared, tmp_path))

    assert list(program.state_dict()) == list(model.state_dict())
    assert torch.equal(program.eval()(images), model.eval()(images))
    assert {op.name for op in prepared.ops() if op.quantized} >= {name, "other"}
    assert torch.equal(restored.eval()(images), prepared.eval()(images))


@pytest.mark.parametrize("name", ["stage", "quantizers", "constants", "history"])
def test_a_parameter_may_have_a_name_that_a_program_uses_itself(images, name):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            self.register_parameter(name, nn.Parameter(torch.full((1,), 2.0)))

        def forward(self, x):
            return self.conv(x) * getattr(self, name) + torch.tensor([1.0])

    model = Scaled()

    prepared = quaver.quant_aware(model, example_inputs=(images,))

    prepared.apply(quaver.disable_fake_quant)
    torch.testing.assert_close(prepared.eval()(images), model.eval()(images), rtol=1e-5, atol=1e-6)


def test_an_input_may_be_named_like_a_child(images):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, features):
            return self.head(self.features(features))

    program = quaver.quant_aware(Named(), example_inputs=(images,))

    program.train()(images)

    assert {op.name for op in program.ops() if op.quantized} == {"features", "head"}
    assert program.unseen() == []
