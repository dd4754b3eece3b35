"""``quaver check`` of a model file; of recipes and of the machine it is in ``test_train.py``."""

import json

import onnx_ir as ir
import pytest
from typer.testing import CliRunner

from deployed import signed
from onnx_models import parsed
from quaver.cli.main import app


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture
def write(tmp_path):
    """A file of one pair, with this zero point."""

    def written(zero):
        pair = "q = QuantizeLinear(x, scale, zero) y = DequantizeLinear(q, scale, zero)"
        model = parsed(f"net (float[N,2] x) => (float[N,2] y) <float scale = {{0.1}}, {zero}> {{ {pair} }}")
        ir.save(model, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return written


def test_what_an_engine_refuses_is_told_with_the_node_and_fails(write):
    done = run("check", write("int8 zero = {5}"), "--target", "tensorrt")

    assert done.exit_code == 1
    assert "refused: 'q': its zero point is 5, not 0 (zero points of zero)" in done.output


def test_a_file_that_keeps_the_rules_passes_and_notes_are_told(write):
    done = run("check", write("int8 zero = {0}"), "--target", "tensorrt")

    assert done.exit_code == 0, done.output
    assert "note: input 'x' has free sizes (N)" in done.output
    assert "keeps all that TensorRT's documentation asks of it" in done.output


def test_the_record_beside_a_file_says_which_engine_it_is_for(write):
    file = write("int8 zero = {5}")
    file.with_name("model.onnx.json").write_text(json.dumps(signed({"target": "tensorrt", "files": {}})))

    assert run("check", file).exit_code == run("check", file.parent).exit_code == 1


def test_of_an_engine_without_rules_it_is_said_what_to_do_instead(write):
    done = run("check", write("int8 zero = {0}"))

    assert done.exit_code == 2
    assert "was written for ONNX Runtime" in " ".join(done.output.split())
    assert "--target (tensorrt)" in " ".join(done.output.split())


def test_a_target_without_rules_is_refused_with_those_that_have_some(write):
    done = run("check", write("int8 zero = {0}"), "--target", "litert")

    assert done.exit_code == 2
    assert "takes one of tensorrt" in " ".join(done.output.split())
