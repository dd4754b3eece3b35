"""Warnings of the library, as a command says them."""

import logging
import warnings
from pathlib import Path

import pytest

from quaver.cli.notices import as_lines, name_others
from quaver.errors import QuaverWarning


def log(sentence):
    logging.getLogger("quaver").warning("%s", sentence)


def warn(sentence):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(sentence, QuaverWarning, stacklevel=1)


@pytest.mark.parametrize("said", [log, warn])
def test_a_warning_is_one_line_without_a_place(said, capsys):
    root = logging.StreamHandler()  # what other libraries leave behind
    logging.getLogger().addHandler(root)
    try:
        with as_lines():
            said("three [layers] are float")
            said("three [layers] are float")
    finally:
        logging.getLogger().removeHandler(root)

    assert capsys.readouterr().err == "warning: three [layers] are float\n"


def test_warnings_of_others_are_shown_as_ever(capsys):
    with pytest.warns(DeprecationWarning, match="old"), as_lines():
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    assert capsys.readouterr().err == ""


def test_afterwards_all_is_as_it_was():
    logger, show = logging.getLogger("quaver"), warnings.showwarning

    with as_lines():
        pass

    assert (logger.propagate, logger.handlers, warnings.showwarning) == (True, [], show)


def test_of_a_folder_for_several_engines_it_is_said_which_file_is_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mobile").mkdir()
    for name in ("model.pte", "model.tflite"):
        Path("mobile", name).touch()

    name_others(Path("mobile"))
    name_others(Path("mobile", "model.tflite"))

    assert capsys.readouterr().err == "mobile/model.pte is taken. model.tflite is there, too: name it to take it.\n"
