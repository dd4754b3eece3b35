"""Stand-ins for processors: what CPUID answers, by leaf and subleaf."""

from quaver.machine.cpuid import Registers

FLAGS_WITH_AMX = "avx2 avx512f avx512_vnni avx512_fp16 amx_tile amx_int8 amx_bf16"
# as a Sapphire Rapids describes its tiles: one kind; eight of them, of 16 rows with 64 bytes each
TILES = {
    0x00: {0: Registers(0x20, 0, 0, 0)},
    0x1D: {0: Registers(1, 0, 0, 0), 1: Registers(1024 << 16 | 8192, 8 << 16 | 64, 16, 0)},
}


def answering(answers):
    """A processor that gives these answers, and zeros to all else."""
    return lambda leaf, subleaf: answers.get(leaf, {}).get(subleaf, Registers(0, 0, 0, 0))


def silent(leaf, subleaf):
    """A processor that cannot be asked."""
