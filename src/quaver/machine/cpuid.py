"""CPUID: what the processor says about itself, which may be less than the system's list of flags promises."""

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

# A function of leaf, subleaf, and four numbers to write to, as C calls it on Linux.
_CODE = bytes.fromhex(
    "f3 0f 1e fa"  # endbr64: some systems let calls land on nothing else
    "53"  # push rbx, which is the caller's
    "49 89 d0"  # mov r8, rdx
    "89 f8 89 f1"  # mov eax, edi; mov ecx, esi
    "0f a2"  # cpuid
    "41 89 00 41 89 58 04 41 89 48 08 41 89 50 0c"  # mov [r8], eax; … ebx; … ecx; … edx
    "5b c3"  # pop rbx; ret
)
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
_FAILED = ctypes.c_void_p(-1).value


class Registers(NamedTuple):
    """An answer."""

    eax: int
    ebx: int
    ecx: int
    edx: int


Ask = Callable[[int, int], Registers | None]
"""`cpuid`, or a stand-in for another processor."""


def cpuid(leaf: int, subleaf: int = 0) -> Registers | None:
    """The processor's answer; None where it is of another kind, or the system lets nobody ask."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return None
    answer = (ctypes.c_uint32 * 4)()
    try:
        code = _executable(_CODE)
    except OSError:  # a hardened system may run no code but what was installed
        return None
    _SIGNATURE(code)(leaf, subleaf, ctypes.addressof(answer))
    _library().munmap(code, len(_CODE))
    return Registers(*answer)


def _executable(code: bytes) -> int:
    """The address of memory with this code, never writable and executable at once: many systems refuse that."""
    file = os.memfd_create("cpuid")
    try:
        os.write(file, code)
        address = _library().mmap(None, len(code), mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
    finally:
        os.close(file)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "no memory for code")
    return int(address)


@cache
def _library() -> ctypes.CDLL:
    """C's own mmap: Python's gives no address of memory that may only be read."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library
