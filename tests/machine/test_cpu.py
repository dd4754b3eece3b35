import pytest

from processors import FLAGS_WITH_AMX, TILES, answering, silent
from quaver.machine.cpu import CPU, cpu
from quaver.machine.cpuid import Registers


@pytest.fixture(autouse=True)
def no_limit(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)


def info(tmp_path, flags, model="Some CPU @ 2.0GHz"):
    one = f"processor\t: {{}}\nmodel name\t: {model}\nflags\t\t: {flags}\nbugs\t\t: amx_int8\n\n"
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "cpuinfo"
    path.write_text(one.format(0) + one.format(1))
    return path


@pytest.mark.parametrize(
    ("flags", "abilities"),
    [
        ("fpu sse2 avx", ()),
        ("fpu avx2", ("AVX2",)),
        ("avx2 avx_vnni", ("AVX2", "VNNI")),
        ("avx2 avx512f avx512_bf16", ("AVX2", "AVX512")),
        ("avx2 avx512f avx512_vnni", ("AVX2", "AVX512", "VNNI")),
        ("amx_tile amx_int8 avx512_vnni avx512f avx2", ("AVX2", "AVX512", "VNNI", "AMX")),
        ("avx2 amx_bf16 amx_tile", ("AVX2",)),
        ("avx20 xavx512f", ()),
    ],
)
def test_abilities_are_read_from_the_flags(tmp_path, flags, abilities):
    found = cpu(info(tmp_path, flags), answering(TILES))

    assert found == CPU("Some CPU @ 2.0GHz", abilities, known=True)


def test_the_words_name_what_is_there_and_what_is_not(tmp_path):
    assert cpu(info(tmp_path, "avx2 avx512f")).words() == "Some CPU @ 2.0GHz: AVX2 and AVX512, but no VNNI and no AMX"
    assert cpu(info(tmp_path, "fpu")).words() == "Some CPU @ 2.0GHz: no AVX2, no AVX512, no VNNI and no AMX"
    all_of_them = cpu(info(tmp_path, "avx2 avx512f avx_vnni amx_tile amx_int8"), answering(TILES))
    assert all_of_them.words() == "Some CPU @ 2.0GHz: AVX2, AVX512, VNNI and AMX"


def test_where_the_system_says_nothing_nothing_is_claimed(tmp_path):
    found = cpu(tmp_path / "none")

    assert (found.model, found.abilities, found.known) == ("", (), False)
    assert "does not say whether it has AVX2, AVX512, VNNI or AMX" in found.words()


def test_a_processor_without_such_flags_is_not_said_to_lack_them(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n")

    found = cpu(path)

    assert not found.known
    assert "does not say" in found.words()


def test_a_limit_on_what_openvino_may_use_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    found = cpu(info(tmp_path, "avx2 avx512f avx512_vnni"))

    assert found.abilities == ("AVX2", "AVX512", "VNNI")
    assert found.words().endswith("(OpenVINO is kept to AVX2 by ONEDNN_MAX_CPU_ISA)")


def test_the_other_spelling_of_the_limit_counts_where_the_first_is_not_set(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX512_CORE")

    assert cpu(info(tmp_path, "avx2")).onednn_limit == "AVX512_CORE"


HIDDEN = {
    "no kind of tile": {0x1D: {}},
    "tiles of size 0": {0x1D: {0: Registers(1, 0, 0, 0), 1: Registers(0, 0, 0, 0)}},
    "no rows": TILES | {0x1D: TILES[0x1D] | {1: Registers(8192, 8 << 16 | 64, 0, 0)}},
    "no such leaf": TILES | {0: {0: Registers(0x1C, 0, 0, 0)}},
}


@pytest.mark.parametrize("answers", HIDDEN.values(), ids=HIDDEN)
def test_an_amx_whose_tiles_are_not_described_is_no_ability(tmp_path, answers):
    found = cpu(info(tmp_path, FLAGS_WITH_AMX), answering(TILES | answers))

    assert found.abilities == ("AVX2", "AVX512", "VNNI")
    assert found.amx_doubt == "does not describe its tiles"
    assert found.words().endswith("but no AMX (it is announced, but does not describe its tiles)")


def test_an_amx_that_nobody_may_ask_about_is_no_ability(tmp_path):
    found = cpu(info(tmp_path, FLAGS_WITH_AMX), silent)

    assert "AMX" not in found.abilities
    assert found.amx_doubt == "this process may not ask it about its tiles"


def test_a_processor_that_announces_no_amx_is_not_asked(tmp_path):
    def refuse(leaf, subleaf):
        raise AssertionError("asked")

    assert cpu(info(tmp_path, "avx2 avx512f avx512_vnni"), refuse).amx_doubt == ""


def test_the_first_processor_is_enough(tmp_path):
    path = info(tmp_path, "avx2")
    path.write_text(path.read_text() + 400 * info(tmp_path / "more", "avx512f").read_text())

    assert cpu(path).abilities == ("AVX2",)


def test_this_machine_can_be_described():
    assert cpu().words()
