"""What the processor can do that int8 speed, and on some engines int8 results, depend on."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quaver.machine.cpuid import Ask, cpuid

# ability -> the flags of /proc/cpuinfo of which any one means it
FLAGS = {
    "AVX2": ("avx2",),
    "AVX512": ("avx512f",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "AMX": ("amx_int8",),
}
LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""The variables of the environment that tell oneDNN how far it may go, the one that counts first."""

_WITH_VNNI = ("VNNI", "BF16", "FP16", "AMX", "ALL", "DEFAULT")  # in the names of oneDNN's levels
_TILES = 0x1D  # the leaf of CPUID that describes AMX' tiles: subleaf 0 how many kinds there are, subleaf 1 the first
_FIRST_PROCESSOR = 1 << 14  # characters of /proc/cpuinfo; the rest would take a while where there are hundreds


@dataclass(frozen=True)
class CPU:
    """A processor: its name, which of the abilities in `FLAGS` it has, and what oneDNN (so OpenVINO) was told to keep to.

    ``known`` is False where the system does not say; then ``abilities`` is empty and means nothing. ``amx_doubt`` says why
    an AMX that is announced is not among the abilities.
    """

    model: str
    abilities: tuple[str, ...]
    known: bool
    onednn_limit: str = ""
    amx_doubt: str = ""

    def saturates(self, *, onednn: bool) -> bool:
        """Whether it adds two 8-bit products in 16 bits: it has no VNNI, or ``onednn`` was told to do without.

        >>> CPU("Some CPU", ("AVX2",), known=True).saturates(onednn=False)
        True
        """
        limited = onednn and self.onednn_limit and not any(level in self.onednn_limit.upper() for level in _WITH_VNNI)
        return self.known and ("VNNI" not in self.abilities or bool(limited))

    def words(self) -> str:
        """The processor in a line of a report.

        >>> CPU("Some CPU", ("AVX2", "VNNI"), known=True).words()
        'Some CPU: AVX2 and VNNI, but no AVX512 and no AMX'
        """
        name = self.model or "a processor that the system does not name"
        if not self.known:
            return f"{name}: the system does not say whether it has {_listed(FLAGS, 'or')}"
        without = [ability for ability in FLAGS if ability not in self.abilities]
        no = _listed([f"no {ability}" for ability in without], "and")
        has = ", but ".join(part for part in (_listed(self.abilities, "and"), no) if part)
        doubt = f" (it is announced, but {self.amx_doubt})" if self.amx_doubt else ""
        limit = f" (OpenVINO is kept to {self.onednn_limit} by {LIMITS[0]})" if self.onednn_limit else ""
        return f"{name}: {has}{doubt}{limit}"


def cpu(info: Path = Path("/proc/cpuinfo"), ask: Ask = cpuid) -> CPU:
    """The processor this runs on, as Linux describes it in ``info``; elsewhere all that is known is that nothing is."""
    limit = next((os.environ[name] for name in LIMITS if os.environ.get(name)), "")
    try:
        with info.open(errors="replace") as file:
            text = file.read(_FIRST_PROCESSOR)
    except OSError:
        return CPU("", (), known=False, onednn_limit=limit)
    # the first processor speaks for all of them, which one socket's cores of one kind make true
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    doubt = _amx_doubt(ask) if "amx_tile" in flags else ""
    announced = (ability for ability, names in FLAGS.items() if any(name in flags for name in names))
    trusted = tuple(ability for ability in announced if ability != "AMX" or not doubt)
    return CPU(fields.get("model name", ""), trusted, known=bool(flags), onednn_limit=limit, amx_doubt=doubt)


def _amx_doubt(ask: Ask) -> str:
    """Why an AMX that is announced should not be used; empty where the processor describes its tiles."""
    leaves, kinds, first = ask(0, 0), ask(_TILES, 0), ask(_TILES, 1)
    if leaves is None or kinds is None or first is None:
        return "this process may not ask it about its tiles"
    tiles, bytes_per_row, rows = first.ebx >> 16, first.ebx & 0xFFFF, first.ecx & 0xFFFF
    # asked for a leaf beyond its last, a processor answers with the last
    described = leaves.eax >= _TILES and kinds.eax and tiles and bytes_per_row and rows
    return "" if described else "does not describe its tiles"


def _listed(items: Iterable[str], joint: str) -> str:
    *most, last = list(items) or [""]
    return f"{', '.join(most)} {joint} {last}" if most else last
