import ctypes
import importlib

import pytest

import quaver
from quaver.machine.cpu import CPU
from quaver.machine.onednn import keep_off_doubtful_amx

LYING = CPU("Some CPU", ("AVX2", "AVX512", "VNNI"), known=True, amx_doubt="does not describe its tiles")


def test_a_doubtful_amx_is_kept_from_onednn_and_said_once(caplog):
    environment = {}

    for _ in range(2):
        keep_off_doubtful_amx(LYING, environment)

    assert environment == {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "announces AMX, but does not describe its tiles" in record.getMessage()
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16" in record.getMessage()


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_a_limit_that_the_user_set_is_left_as_it_is(caplog, name):
    environment = {name: "AVX512_CORE_AMX"}

    keep_off_doubtful_amx(LYING, environment)

    assert environment == {name: "AVX512_CORE_AMX"}
    assert caplog.records == []


def test_without_doubt_nothing_is_done(caplog):
    environment = {}

    keep_off_doubtful_amx(CPU("Some CPU", ("AVX2", "AMX"), known=True), environment)

    assert environment == {}
    assert caplog.records == []


def test_importing_quaver_is_early_enough_for_whoever_computes_then(monkeypatch, caplog):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")  # which is as good as none, and put back in the end
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr("quaver.machine.onednn.cpu", lambda: LYING)

    importlib.reload(quaver)

    assert c_library().getenv(b"ONEDNN_MAX_CPU_ISA") == b"AVX512_CORE_FP16"
    assert len(caplog.records) == 1


def c_library():
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_char_p
    return library
