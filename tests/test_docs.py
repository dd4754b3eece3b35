"""The snippets in README and guide are run, in order, as a reader would."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


PAGES = ["README.md", "docs/guide.md", "docs/training.md", "docs/analysis_and_report.md", "docs/eager.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_python_snippet_of_the_page_runs(page, tmp_path, monkeypatch, capsys):
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page}

    for snippet in snippets:
        exec(compile(snippet, page, "exec"), namespace)

    assert len(snippets) >= 2
    assert "Program (" in capsys.readouterr().out


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert broken == []
