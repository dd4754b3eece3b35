"""The snippets of the page on data and models are run, in order, as a reader would."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parent.parent / "docs" / "data_and_models.md"


def test_every_python_snippet_of_the_page_runs(tmp_path, monkeypatch, capsys):
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}

    for snippet in snippets:
        exec(compile(snippet, str(PAGE), "exec"), namespace)

    printed = capsys.readouterr().out
    assert "1438 10 (3, 32, 32)" in printed
    assert "['classifier.weight', 'classifier.bias']" in printed


def test_the_page_names_every_data_set_and_architecture():
    from quaver import models
    from quaver.data.by_name import NAMES

    text = PAGE.read_text()

    assert [name for name in (*NAMES, *models.names()) if f"`{name}`" not in text] == []
