import importlib.util
from importlib.metadata import version

import pytest

from quaver.machine.cpu import CPU
from quaver.measure import machine as module
from quaver.measure.machine import machine


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that is all there is to find programs in."""
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    def program(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return program


def facts(area):
    return {fact.name: fact for fact in machine() if fact.area == area}


def on(monkeypatch, abilities=(), **about):
    monkeypatch.setattr(module, "cpu", lambda: CPU("Some CPU", abilities, **({"known": True} | about)))
    return facts("processor")


def test_what_a_processor_has_and_lacks_is_told(path, monkeypatch):
    found = on(monkeypatch, ("AVX2", "AVX512"))

    assert {name: fact.state for name, fact in found.items()} == {
        "Some CPU": "yes",
        "AVX2": "yes",
        "AVX512": "yes",
        "VNNI": "no",
        "AMX": "no",
    }
    assert "saturation_safe" in found["VNNI"].remedy


def test_an_amx_that_cannot_be_trusted_is_doubtful_and_the_limit_told(path, monkeypatch):
    doubt, limit = "does not describe its tiles", "AVX512_CORE_FP16"
    found = on(monkeypatch, ("AVX2", "AVX512", "VNNI"), amx_doubt=doubt, onednn_limit=limit)

    assert found["AMX"].state == "doubtful"
    assert doubt in found["AMX"].remedy
    assert found["limit"].found == limit


def test_of_a_processor_that_the_system_does_not_describe_nothing_is_claimed(path, monkeypatch):
    found = on(monkeypatch, known=False)

    assert {found[name].state for name in ("AVX2", "AVX512", "VNNI", "AMX")} == {"doubtful"}


def test_engines_have_a_version_or_a_way_to_get_them(path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "executorch" else there(name))

    found = facts("engines")

    assert list(found) == ["torch", "openvino", "onnxruntime", "executorch", "ai_edge_litert"]
    assert found["torch"].found == version("torch")
    assert (found["executorch"].state, found["executorch"].found) == ("no", "")
    assert found["executorch"].remedy == "pip install 'quaver[executorch]'"


def test_without_compilers_their_installation_is_told(path):
    found = facts("compilers")

    assert {fact.state for fact in found.values()} == {"no"}
    assert {found[name].remedy for name in ("C++ compiler", "torch.compile")} == {
        "install g++ or clang++",
        "install a C++ compiler",
    }


@pytest.mark.parametrize(
    ("script", "state", "remedy"),
    [
        ("echo Compiler 12.2.0", "yes", ""),
        (
            "echo 'source.cc:1:10: fatal error: Python.h: No such file'; exit 1",
            "no",
            "install Python's headers (python3-dev)",
        ),
        ("echo 'source.cc:2: fatal error: omp.h: No such file'; exit 1", "no", "install OpenMP (libomp-dev)"),
        ("echo 'error: no licence'; exit 1", "no", "error: no licence"),
    ],
)
def test_a_compiler_is_tried_on_what_torch_would_give_it(path, script, state, remedy):
    path("c++", script)

    found = facts("compilers")["torch.compile"]

    assert (found.state, found.remedy) == (state, remedy)


def test_the_version_of_a_tool_is_read_from_what_it_says(path):
    path("cmake", "echo 'cmake version 4.4.4'; echo more")

    assert facts("compilers")["cmake"].found == "4.4.4"


def test_an_accelerator_is_named_with_its_memory(path, monkeypatch):
    class About:
        name, total_memory = "Some GPU", 141 * 2**30

    cuda = {"is_available": lambda: True, "device_count": lambda: 1, "get_device_properties": lambda _: About}
    for name, stand_in in cuda.items():
        monkeypatch.setattr(module.torch.cuda, name, stand_in)

    found = facts("accelerator")

    assert found["Some GPU"].found == "141 GiB"
    assert "triton" in facts("compilers")
