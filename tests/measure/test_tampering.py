"""Whatever is changed in an exported file, `verify` and the trial after an export see it; what the simulation has, they let pass."""

from functools import cache

import numpy as np
import pytest

import quaver
from quaver.errors import EngineError, QuaverError
from quaver.export import form_for
from quaver.export.trial import compare
from quaver.targets import TARGETS
from tampering import FILES, TAMPERINGS, frozen, images, tampered


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """A program, its file, and what the file gives, by engine."""

    @cache
    def of(target):
        program = frozen(target)
        file = quaver.export(program, tmp_path_factory.mktemp(target), target=target)
        return program, file, quaver.runtime.load(file)(images().numpy())

    return of


@pytest.mark.parametrize("target", FILES)
def test_what_was_exported_passes(deployed, target):
    program, file, _ = deployed(target)

    assert quaver.verify(program, file, [images()]).failures == []


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_changed_file_is_caught(deployed, tmp_path, target, what):
    program, file, good = deployed(target)
    changed = tampered(file, tmp_path / "mended", TAMPERINGS[what])
    assert not np.array_equal(quaver.runtime.load(changed)(images().numpy()), good), "nothing was changed"

    result = quaver.verify(program, changed, [images()])

    assert not result.passed
    with pytest.raises(EngineError, match="is not what the program computes"):
        just_written = tampered(file, tmp_path / "written", TAMPERINGS[what], mended=False)
        compare(form_for(program, TARGETS[target]), just_written, quaver.runtime.load(just_written))
