import pytest

import quaver

pytestmark = pytest.mark.slow


def test_a_program_exported_twice_in_one_process_gives_the_same_bytes(trained, tmp_path):
    frozen = quaver.convert(trained)

    for name in ("one", "other"):
        quaver.export(frozen, tmp_path / name, target="openvino")

    one, other = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "other"))
    assert one.keys() == {"model.xml", "model.bin", "model.xml.json"}
    assert [name for name in one if one[name] != other[name]] == []
