"""Without LiteRT; these tests need none of it."""

import sys

import pytest

from quaver.engines.litert.flatbuffer import schema
from quaver.errors import EngineError, StorageError
from quaver.runtime import load, seal


@pytest.fixture(autouse=True)
def missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)


def test_without_litert_the_way_to_install_it_is_said(tmp_path):
    (tmp_path / "model.tflite").write_bytes(seal.sealed(b"content"))

    with pytest.raises(EngineError, match=r"ai-edge-litert is not installed.*pip install 'quaver\[litert\]'"):
        load(tmp_path / "model.tflite")


def test_without_litert_nothing_can_be_written():
    with pytest.raises(EngineError, match=r"ai-edge-litert is not installed: it writes \.tflite files"):
        schema()


def test_damage_is_found_without_litert(tmp_path):
    (tmp_path / "model.tflite").write_bytes(seal.sealed(b"content")[1:])

    with pytest.raises(StorageError, match="its checksum differs"):
        load(tmp_path / "model.tflite")
