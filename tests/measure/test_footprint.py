from subprocess import CompletedProcess

import numpy as np
import pytest

from quaver.engines import ENGINES, installed
from quaver.errors import EngineError
from quaver.measure import footprint
from quaver.measure.footprint import file_size, memory

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow


def with_weights(path, floats):
    """A model that adds a constant of so many numbers to its input."""
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.ones((1, floats), np.float32), "w")
    ports = [make.make_tensor_value_info(name, kind, ["N", floats]) for name in ("x", "y")]
    graph = make.make_graph([make.make_node("Add", ["x", "w"], ["y"])], "add", ports[:1], ports[1:], [weights])
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_the_size_of_an_artefact_is_that_of_the_files_an_engine_reads(tmp_path):
    for name, size in {"m.xml": 10, "m.bin": 100, "m.xml.json": 7, "n.onnx": 20, "n.onnx.data": 200, "n.bin": 5}.items():
        (tmp_path / name).write_bytes(b"." * size)

    assert file_size(tmp_path / "m.xml") == 110
    assert file_size(tmp_path / "n.onnx") == 220


@pytest.mark.skipif(not footprint.STATUS.exists(), reason="the system does not tell")
def test_memory_covers_weights_and_batch(tmp_path):
    mega = 2**20
    model = with_weights(tmp_path / "m.onnx", 8 * mega)

    found = memory(model, "onnxruntime", batch=4)

    assert found.load >= 32 * mega  # the weights
    assert found.run >= (32 + 2 * 4 * 32) * mega  # and a batch of four, in and out


def test_where_the_system_does_not_tell_nothing_is_claimed(tmp_path, monkeypatch):
    monkeypatch.setattr(footprint, "STATUS", tmp_path / "none")
    model = with_weights(tmp_path / "m.onnx", 4)

    assert footprint._measured(model, "onnxruntime", 1, 1) == footprint.Memory(None, None)


def test_a_model_that_cannot_run_is_an_error_with_the_reason(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")

    with pytest.raises(EngineError, match=r"m\.onnx: its memory on onnxruntime could not be measured: .*cannot run it"):
        memory(tmp_path / "m.onnx", "onnxruntime")


def test_a_model_whose_engine_dies_is_an_error_with_the_signals_name(tmp_path, monkeypatch):
    monkeypatch.setattr(footprint.subprocess, "run", lambda *_, **__: CompletedProcess([], -4, "", "a line\n"))

    with pytest.raises(EngineError, match=r"m\.onnx: .* could not be measured: it died of SIGILL \(illegal instruction\)"):
        memory(tmp_path / "m.onnx", "onnxruntime")


def test_every_file_has_an_engine_that_reads_it():
    assert all(engine.suffix in engine.reads for engine in ENGINES.values())


def test_an_engine_that_is_not_installed_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr("quaver.engines.engine.find_spec", lambda name: None)

    assert not any(engine.is_installed for engine in ENGINES.values())
    with pytest.raises(EngineError, match=r"openvino is not installed. Install it with pip install openvino"):
        installed("openvino")
