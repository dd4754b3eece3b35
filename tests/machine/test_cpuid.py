import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from quaver.machine import cpuid as module
from quaver.machine.cpuid import cpuid

x86_linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="CPUID is asked on Linux on x86 processors alone"
)


@x86_linux
def test_the_processor_names_its_maker_as_the_system_does():
    fields = dict(line.partition(":")[::2] for line in Path("/proc/cpuinfo").read_text().splitlines())
    maker = {key.strip(): value.strip() for key, value in fields.items()}["vendor_id"]

    _, ebx, ecx, edx = cpuid(0)

    assert struct.pack("<III", ebx, edx, ecx).decode() == maker


@x86_linux
def test_the_subleaf_is_asked_for():
    widths = {cpuid(0xD, part).eax for part in range(3)}  # leaf 0xD: what saving registers takes, part by part

    assert len(widths) > 1


@x86_linux
def test_a_system_that_makes_no_such_file_is_not_asked(monkeypatch):
    def refuse(*_):
        raise PermissionError("not here")

    monkeypatch.setattr(module.os, "memfd_create", refuse)

    assert cpuid(0) is None


@x86_linux
def test_a_system_that_runs_no_code_of_ours_is_not_asked(monkeypatch):
    monkeypatch.setattr(module._library(), "mmap", lambda *_: module._FAILED)

    assert cpuid(0) is None


@x86_linux
def test_asking_needs_no_numpy():
    asked = "import sys; from quaver.machine.cpuid import cpuid; cpuid(0); print('numpy' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_another_kind_of_processor_is_not_asked(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    assert cpuid(0) is None
