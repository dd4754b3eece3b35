"""What the processor can do that int8 speed, and on some engines int8 results, depend on."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# ability -> the flags of /proc/cpuinfo of which any one means it
FLAGS = {
    "AVX2": ("avx2",),
    "AVX512": ("avx512f",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "AMX": ("amx_int8",),
}


@dataclass(frozen=True)
class CPU:
    """A processor: its name, which of the abilities in `FLAGS` it has, and what oneDNN (so OpenVINO) was told to keep to.

    ``known`` is False where the system does not say; then ``abilities`` is empty and means nothing.
    """

    model: str
    abilities: tuple[str, ...]
    known: bool
    onednn_limit: str = ""

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
        limit = f" (OpenVINO is kept to {self.onednn_limit} by ONEDNN_MAX_CPU_ISA)" if self.onednn_limit else ""
        return f"{name}: {has}{limit}"


def cpu(info: Path = Path("/proc/cpuinfo")) -> CPU:
    """The processor this runs on, as Linux describes it in ``info``; elsewhere all that is known is that nothing is."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    try:
        text = info.read_text(errors="replace")
    except OSError:
        return CPU("", (), known=False, onednn_limit=limit)
    # the first processor speaks for all of them, which one socket's cores of one kind make true
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    found = tuple(ability for ability, names in FLAGS.items() if any(name in flags for name in names))
    return CPU(fields.get("model name", ""), found, known=bool(flags), onednn_limit=limit)


def _listed(words: Iterable[str], joint: str) -> str:
    *most, last = list(words) or [""]
    return f"{', '.join(most)} {joint} {last}" if most else last
