import shutil

import pytest

from runs import write_run


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Two runs; not to be changed."""
    return [write_run(tmp_path_factory.mktemp(name), bits) for name, bits in (("first", 4), ("second", 8))]


@pytest.fixture
def folder(made, tmp_path):
    """A run of the test's own."""
    return shutil.copytree(made[1], tmp_path / "run")
