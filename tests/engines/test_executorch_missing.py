"""Without executorch; these tests need none of it."""

import sys

import pytest

from quaver.errors import EngineError, StorageError
from quaver.runtime import load, seal


def test_without_executorch_the_way_to_install_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "executorch.extension.pybindings", None)
    (tmp_path / "model.pte").write_bytes(seal.sealed(b"content"))

    with pytest.raises(EngineError, match=r"executorch is not installed.*pip install 'quaver\[executorch\]'"):
        load(tmp_path / "model.pte")


def test_damage_is_found_without_executorch(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "executorch.extension.pybindings", None)
    (tmp_path / "model.pte").write_bytes(seal.sealed(b"content")[1:])

    with pytest.raises(StorageError, match="its checksum differs"):
        load(tmp_path / "model.pte")


def test_a_seal_is_taken_off_again(tmp_path):
    (tmp_path / "model.pte").write_bytes(seal.sealed(b"content"))

    assert seal.unsealed(tmp_path / "model.pte") == b"content"
