"""What the tests themselves keep to."""

import ast
import shutil
import tempfile
from pathlib import Path

import pytest

import browser
from needs import lacking

TESTS = Path(__file__).parent


def test_what_is_missing_skips_a_test_with_a_reason(monkeypatch):
    monkeypatch.setenv("QUAVER_NEEDS", "cpp executorch")

    with pytest.raises(pytest.skip.Exception, match="no browser was found"):
        lacking("browser", "no browser was found")


def test_what_is_missing_fails_a_test_where_it_must_be_there(monkeypatch):
    monkeypatch.setenv("QUAVER_NEEDS", "cpp browser")

    with pytest.raises(pytest.fail.Exception, match="no browser was found, and QUAVER_NEEDS says that browser must be here"):
        lacking("browser", "no browser was found")


def test_where_there_is_no_browser_no_folder_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("QUAVER_NEEDS", "")

    with pytest.raises(pytest.skip.Exception) as skipped:
        browser.Browser()

    assert list(tmp_path.iterdir()) == [], skipped  # which keeps what was made alive


def test_no_test_has_a_time_limit_of_its_own():
    limits = [
        f"{path.relative_to(TESTS)}:{node.value.lineno}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "timeout" and isinstance(node.value, ast.Constant)
    ]

    assert limits == [], "use limits.AN_HOUR"
