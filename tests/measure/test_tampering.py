"""Whatever is changed in an exported file, `verify` sees it, and so does the trial of a file that was just written."""

import sys
from functools import cache

import numpy as np
import pytest

import quaver
from quaver.engines import ENGINES
from quaver.errors import EngineError, InputError
from quaver.export import form_for
from quaver.export.acceptance import compare
from quaver.runtime import load
from tampering import FILES, TAMPERINGS, frozen, images, tampered

pytestmark = pytest.mark.slow

LEAST = 59  # as many as an attacker tried


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """A program, its file, and what the file gives, by engine."""

    @cache
    def of(target):
        program = frozen(target)
        file = quaver.export(program, tmp_path_factory.mktemp(target), target=target)
        return program, file, load(file)(images().numpy())

    return of


def verdict_on(program, file):
    """What is wrong, in words."""
    try:
        return quaver.verify(program, file, [images()]).failures
    except InputError as error:  # a tensor of another shape
        return [str(error)]


@pytest.mark.parametrize("target", FILES)
def test_what_was_exported_passes(deployed, target):
    program, file, _ = deployed(target)

    assert verdict_on(program, file) == []


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_changed_file_is_caught_by_verify_and_by_its_trial(deployed, tmp_path, target, what):
    program, file, good = deployed(target)
    changed = tampered(file, tmp_path, TAMPERINGS[what])
    run = load(changed)
    assert not np.array_equal(run(images().numpy()), good), "nothing was changed"

    assert verdict_on(program, changed) != []
    with pytest.raises(EngineError, match="is not what the program computes"):
        compare(form_for(program, ENGINES[target]), changed, ENGINES[target], run)


def test_these_are_as_many_as_an_attacker_tried():
    assert len(TAMPERINGS) >= LEAST


def test_what_the_writer_gets_wrong_is_refused_and_nothing_is_left(deployed, tmp_path, monkeypatch):
    program, _, _ = deployed("openvino")
    module = sys.modules["quaver.engines.openvino.writer"]
    write = module.write

    def careless(program, path, origin, options):
        write(program, path, origin, options)
        file = FILES["openvino"](path)
        TAMPERINGS["two channels of last swapped"](file)
        file.save()

    monkeypatch.setattr(module, "write", careless)

    with pytest.raises(EngineError, match=r"'hard_swish': \d+ of \d+ integers differ, by up to .* steps"):
        quaver.export(program, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
