"""What this machine has for Quaver, and what is missing for what."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch

from quaver.engines import packages
from quaver.machine.cpu import CPU, cpu
from quaver.machine.packages import version_of

State = Literal["yes", "no", "doubtful"]


@dataclass(frozen=True)
class Fact:
    """One thing that a machine has or lacks: ``use`` is what it is for, ``remedy`` what to do if that is wanted."""

    area: str
    name: str
    state: State
    found: str = ""
    use: str = ""
    remedy: str = ""


def machine() -> Iterator[Fact]:
    """Everything there is to know, area by area."""
    yield from _processor(cpu())
    yield from _accelerator()
    yield from _engines()
    yield from _compilers()
    yield from _extras()


# the processor

_USE = {
    "AVX2": "int8 on OpenVINO is the simulation, bit for bit",
    "AVX512": "wider products",
    "VNNI": "int8 at full speed",
    "AMX": "int8 and bfloat16 in tiles",
}
_WITHOUT = {
    "AVX2": "without fused multiply-add an integer in millions may differ from the simulation",
    "VNNI": "int8 works, but slower; saturation_safe weights, the default, keep it exact",
}


def _processor(processor: CPU) -> Iterator[Fact]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    name = processor.model or "a processor that the system does not name"
    many = f"{cores} core{'s' * (cores > 1)}, of which torch uses {threads}"
    yield Fact("processor", name, "yes", use=many)
    for ability, use in _USE.items():
        if ability == "AMX" and processor.amx_doubt:
            remedy = f"it is announced, but {processor.amx_doubt}; engines could die of it, and go without"
            yield Fact("processor", ability, "doubtful", use=use, remedy=remedy)
        elif not processor.known:
            yield Fact("processor", ability, "doubtful", use=use, remedy="the system does not say whether it is there")
        elif ability in processor.abilities:
            yield Fact("processor", ability, "yes", use=use)
        else:
            yield Fact("processor", ability, "no", use=use, remedy=_WITHOUT.get(ability, ""))
    if processor.onednn_limit:
        use = "as far as OpenVINO and torch go (ONEDNN_MAX_CPU_ISA)"
        yield Fact("processor", "limit", "yes", processor.onednn_limit, use)


def _accelerator() -> Iterator[Fact]:
    use = "training, many times as fast"
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    for device in devices:
        about = torch.cuda.get_device_properties(device)
        yield Fact("accelerator", about.name, "yes", f"{about.total_memory / 2**30:.0f} GiB", use)
    if not devices:
        built = torch.version.cuda or torch.version.hip
        reason = "torch finds none" if built else "this torch was built for processors alone; another one may find it"
        yield Fact("accelerator", "CUDA", "no", use=use, remedy=reason)


# packages

_EXTRAS = {
    "pycocotools": ("detection", "average precision as COCO counts it"),
    "tensorboard": ("tensorboard", "--tensorboard"),
}


def _engines() -> Iterator[Fact]:
    yield _package("engines", "torch", "trains and simulates", "torch")
    for package, engine in packages().items():
        yield _package("engines", package, f"runs {' and '.join(engine.reads)} files", engine.requirement)


def _extras() -> Iterator[Fact]:
    for package, (extra, use) in _EXTRAS.items():
        yield _package("extras", package, use, f"'quaver[{extra}]'")


def _package(area: str, name: str, use: str, install: str) -> Fact:
    if find_spec(name) is None:
        return Fact(area, name, "no", use=use, remedy=f"pip install {install}")
    return Fact(area, name, "yes", version_of(name), use)


# compilers

_SOURCE = "#include <Python.h>\n#include <omp.h>\nint main() { return omp_get_max_threads() > 0 ? 0 : 1; }\n"
_HEADERS = {"Python.h": "install Python's headers (python3-dev)", "omp": "install OpenMP (libomp-dev)"}


def _compilers() -> Iterator[Fact]:
    compiler = os.environ.get("CXX") or next(filter(None, map(_where, ("c++", "g++", "clang++"))), "")
    yield _tool("C++ compiler", compiler, "make cpp, --compile", "install g++ or clang++")
    yield _tool("cmake", _where("cmake"), "make cpp", "pip install cmake")
    yield _tool("make", _where("make"), "make cpp", "install make")
    problem = _trouble_with(compiler)
    yield Fact("compilers", "torch.compile", "no" if problem else "yes", use="--compile on the processor", remedy=problem)
    if torch.cuda.is_available():
        yield _package("compilers", "triton", "--compile on the accelerator", "triton")


def _where(tool: str) -> str:
    beside = str(Path(sys.executable).parent)  # a virtual environment's own
    return shutil.which(tool, path=os.pathsep.join([beside, os.environ.get("PATH", "")])) or ""


def _tool(name: str, path: str, use: str, remedy: str) -> Fact:
    if not path:
        return Fact("compilers", name, "no", use=use, remedy=remedy)
    number = re.search(r"\d+(\.\d+)+", _output([path, "--version"]))
    return Fact("compilers", name, "yes", number.group() if number else path, use)


def _trouble_with(compiler: str) -> str:
    """Why torch could not compile for the processor: it needs a compiler with OpenMP, and Python's headers."""
    if not compiler:
        return "install a C++ compiler"
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source.cc"
        source.write_text(_SOURCE)
        headers = sysconfig.get_path("include")
        output = _output([compiler, "-fopenmp", f"-I{headers}", "-c", str(source), "-o", str(source.with_suffix(".o"))])
    wrong = [line for line in output.splitlines() if "error" in line]
    remedies = [remedy for header, remedy in _HEADERS.items() if any(header in line for line in wrong)]
    return next(iter([*remedies, *wrong]), "")


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"error: {error}"
    return done.stdout + done.stderr
